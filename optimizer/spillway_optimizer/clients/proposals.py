"""NATS JetStream client: publishes proposals and awaits the server's acknowledgement of each."""

import asyncio
import ssl

import nats
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import BadRequestError
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, nats_client

_MAX_AGE_S = 3600
_ACK_TIMEOUT_S = 2.0
_INBOXES = {"optimizer": names.NATS_INBOX_OPTIMIZER, "papa": names.NATS_INBOX_PAPA}


class Proposals:
    """Publishes proposals. Connects at first use, and reconnects by itself after every loss.

    `origin`: optimizer or papa. It also selects the inbox of its NATS user.
    """

    def __init__(self, url: str, origin: str, tls: ssl.SSLContext | None = None):
        self._tls = {"tls": tls} if tls else {}
        self._url, self._inbox = url, _INBOXES[origin]
        self._subject = names.NATS_SUBJECT_PROPOSALS.format(origin=origin)
        self._client: nats.NATS | None = None
        self._connecting = asyncio.Lock()  # callers may come at the same time

    async def connect(self) -> None:
        """Raises nats.errors.Error, OSError or TimeoutError if the server is away."""
        await self._connected()

    async def _connected(self) -> nats.NATS:
        """Returns the client, connected at first use. Raises as `connect` does."""
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> nats.NATS:
        client = await nats_client.connect(
            self._url,
            **self._tls,
            inbox_prefix=self._inbox,
            connect_timeout=2,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
        )
        try:
            await self._ensure_stream(client)
        except BaseException:
            await client.close()  # the next use connects again, and asks for the stream again
            raise
        return client

    async def _ensure_stream(self, client: nats.NATS) -> None:
        """Creates the stream. Every proposer requests the same one.

        A stream that exists with another configuration is the operator's and is left unchanged.
        """
        stream = StreamConfig(
            name=names.NATS_STREAM_PROPOSALS,
            subjects=[names.NATS_SUBJECT_PROPOSALS_ALL],
            storage=StorageType.FILE,
            max_age=_MAX_AGE_S,
        )
        try:
            await client.jetstream().add_stream(stream)
        except BadRequestError:
            await client.jetstream().stream_info(names.NATS_STREAM_PROPOSALS)

    async def publish(self, ruleset: Ruleset) -> None:
        """Publishes a ruleset. Returns once JetStream has stored it.

        Its id makes a repeat harmless. Raises as `connect` does.
        """
        client = await self._connected()
        if not client.is_connected:
            raise ConnectionError("NATS is reconnecting")
        await client.jetstream().publish(
            self._subject,
            ruleset.SerializeToString(),
            timeout=_ACK_TIMEOUT_S,
            headers={"Nats-Msg-Id": ruleset.id},
        )

    async def close(self) -> None:
        if self._client is not None and not self._client.is_closed:
            await self._client.close()
