"""Sends messages to Kafka, until the brokers have them."""

from typing import NamedTuple

import faust
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import RecordMetadata
from faust.exceptions import ProducerSendError
from spillway_runtime import retry
from spillway_runtime.status import Status

from spillway_streams import StreamsError
from spillway_streams.process import health

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class TooLargeError(StreamsError):
    """A message above the broker's limit. No retry will get it through."""


class Message(NamedTuple):
    """A record to send. Without a partition, the producer chooses one."""

    topic: str
    value: bytes
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Sender:
    """Sends with the app's producer."""

    def __init__(self, app: faust.App, status: Status) -> None:
        self._app, self._status = app, status

    async def send(self, message: Message) -> RecordMetadata:
        """Returns where the record is, once all in-sync replicas have it, however long that takes.

        Raises TooLargeError when the brokers refuse the message for its size.
        """
        done = await retry.until_done(lambda: self._attempt(message), health.KAFKA, self._status)
        if isinstance(done, str):
            raise TooLargeError(f"{message.topic}: {len(message.value)} bytes: {done}")
        return done

    async def _attempt(self, message: Message) -> RecordMetadata | str:
        """Returns where the record is, or why the broker will never accept it."""
        try:
            return await self.once(message)
        except _TOO_LARGE as error:
            return str(error)
        except ProducerSendError as error:
            if isinstance(error.__cause__, _TOO_LARGE):
                return str(error.__cause__)
            raise

    async def once(self, message: Message) -> RecordMetadata:
        """Makes one attempt. Raises what the client raises."""
        producer = await self._app.maybe_start_producer()
        topic, value, partition, headers = message
        return await producer.send_and_wait(topic, None, value, partition, None, list(headers))
