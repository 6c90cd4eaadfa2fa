"""Checkpoints: whole rulesets that are kept for 30 days, so that a rollback can go back that far.

A checkpoint is written whenever weights changed. The bucket has only 64 versions per cluster, which
renewals every 15 s use up within 16 minutes. A checkpoint is signed like a value of the bucket. The
stream's subject, which is no cluster's name, stands in place of the cluster. Publishing never waits
for checkpoints. A checkpoint that cannot be written now is tried again.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from nats.js import JetStreamContext, api
from nats.js.api import Header
from nats.js.errors import APIError, BadRequestError, NotFoundError
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_contracts.bases import positive, rule_key

from spillway_publisher.bucket.jetstream import TROUBLE
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.signing import UnverifiedError
from spillway_publisher.bucket.values import decode, number
from spillway_publisher.process.telemetry import CHECKPOINTS, Telemetry

STREAM, SUBJECT = names.NATS_STREAM_CHECKPOINTS, names.NATS_SUBJECT_CHECKPOINTS
DAYS = 30
REFUSED = "checkpoint"  # prefix of counters: malformed.checkpoint.<reason>
RETRY_S = 2.0
REACH = 64  # how many of the last messages are searched for the newest verified checkpoint
# Maximum number of checkpoints waiting for NATS; beyond it the oldest is dropped and counted
WAITING = 64


@dataclass(frozen=True)
class Checkpoint:
    """One message of the stream."""

    sequence: int
    version: int  # the version that the message claims; 0: undecodable
    ruleset: Ruleset | None  # None: not signed by a trusted key


def weights(ruleset: Ruleset) -> dict:
    """Returns weights by rule. Two rulesets with equal results route alike."""
    return {rule_key(rule): positive(rule) for rule in ruleset.rules}


class Reader:
    """Reads the stream.

    Every method raises jetstream.TROUBLE. All but `newest` raise NotFoundError, one of them, when
    the stream does not exist yet.
    """

    def __init__(self, keys: Keys, telemetry: Telemetry) -> None:
        self._keys, self._telemetry = keys, telemetry

    async def newest(self, js: JetStreamContext) -> Checkpoint | None:
        """Returns the last message, or None when the stream is empty or does not exist."""
        try:
            return self._opened(await js.get_last_msg(STREAM, SUBJECT))
        except NotFoundError:
            return None

    async def before(self, js: JetStreamContext, version: int, count: int = 1) -> list[Ruleset]:
        """Returns at most `count` verified checkpoints below this version, newest first.

        It bisects by the versions that the messages claim, so it reads few of them. Checkpoints
        that cannot be verified are skipped and counted.
        """
        first, behind = await self._bounds(js)
        low, high = first, behind
        while low < high:
            middle = (low + high) // 2
            found = await self._at(js, middle)
            if found is None or found.version >= version:
                high = middle
            else:
                low = max(middle, found.sequence) + 1
        result: list[Ruleset] = []
        sequence = high - 1
        while sequence >= first and len(result) < count:
            found = await self._at(js, sequence)
            if found and found.ruleset and found.ruleset.version < version:
                result.append(found.ruleset)
            sequence -= 1
        return result

    async def newest_verified(self, js: JetStreamContext) -> Ruleset | None:
        """Returns the newest verified checkpoint among the last REACH messages, or None.

        The bound matters because a key that is no longer trusted may have signed thousands of
        messages.
        """
        first, behind = await self._bounds(js)
        for sequence in range(behind - 1, max(first, behind - REACH) - 1, -1):
            found = await self._at(js, sequence)
            if found and found.ruleset:
                return found.ruleset
        return None

    async def _bounds(self, js: JetStreamContext) -> tuple[int, int]:
        """Returns the first sequence number, and the last one plus 1."""
        state = (await js.stream_info(STREAM)).state
        return max(1, state.first_seq), state.last_seq + 1

    async def _at(self, js: JetStreamContext, sequence: int) -> Checkpoint | None:
        """Returns the message with this number, or the next one if it was deleted.

        Returns None when there is no message from this number on.
        """
        try:
            return self._opened(await js.get_msg(STREAM, seq=sequence, subject=SUBJECT, next=True))
        except NotFoundError:
            return None

    def _opened(self, found: api.RawStreamMsg) -> Checkpoint:
        payload, sequence = found.data or b"", number(found)
        ruleset = decode(payload)
        version = ruleset.version if ruleset else 0
        try:
            self._keys.verify(SUBJECT, payload, found.headers)
        except UnverifiedError as error:
            self._telemetry.malformed(f"{REFUSED}.{error.reason}", SUBJECT, sequence, str(error))
            return Checkpoint(sequence, version, None)
        return Checkpoint(sequence, version, ruleset)


class Checkpoints:
    """Keeps what is published. `note` only appends to a buffer; `run` writes."""

    def __init__(self, keys: Keys, telemetry: Telemetry, maximum_bytes: int, replicas: int) -> None:
        self._keys, self._telemetry = keys, telemetry
        self._reader = Reader(keys, telemetry)
        self._config = api.StreamConfig(
            name=STREAM,
            subjects=[SUBJECT],
            storage=api.StorageType.FILE,
            max_age=DAYS * 86_400.0,
            max_bytes=maximum_bytes,
            discard=api.DiscardPolicy.OLD,
            num_replicas=replicas,
        )
        self._waiting: deque[Ruleset] = deque()
        self._filled = asyncio.Event()

    async def newest(self, js: JetStreamContext) -> Ruleset | None:
        """Returns the newest checkpoint with a trusted signature among the last REACH messages.

        Returns None when there is none. Raises jetstream.TROUBLE.
        """
        try:
            return await self._reader.newest_verified(js)
        except NotFoundError:
            return None  # the stream does not exist yet

    def note(self, whole: Ruleset) -> None:
        """Queues a ruleset of all clusters, with its version, that has come into force."""
        copy = Ruleset()
        copy.CopyFrom(whole)
        copy.ClearField("canary")  # a rollback goes to what was in force everywhere
        self._waiting.append(copy)
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._telemetry.counters["checkpoints.dropped"] += 1
        self._filled.set()

    async def run(self, js: JetStreamContext) -> None:
        """Writes queued checkpoints for ever. Counts jetstream.TROUBLE and tries again."""
        ready = False
        while True:
            try:
                if not ready:
                    await self._ensure(js)
                    ready = True
                await self._filled.wait()
                while self._waiting:
                    await self._keep(js, self._waiting[0])
                    self._waiting.popleft()
                self._filled.clear()
            except TROUBLE as error:
                self._telemetry.counters["checkpoints.failed"] += 1
                self._telemetry.servers.failed(CHECKPOINTS, error)
                await asyncio.sleep(RETRY_S)

    async def _ensure(self, js: JetStreamContext) -> None:
        try:
            await js.add_stream(self._config)
        except BadRequestError:
            await js.update_stream(self._config)

    async def _keep(self, js: JetStreamContext, whole: Ruleset) -> None:
        """Appends the ruleset unless it is older than the last checkpoint or routes like it."""
        while True:
            last = await self._reader.newest(js)
            if last and last.ruleset:
                known = last.ruleset
                if known.version >= whole.version or weights(known) == weights(whole):
                    break
            payload = whole.SerializeToString(deterministic=True)
            headers = self._keys.sign(SUBJECT, payload)
            headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(last.sequence if last else 0)
            try:
                await js.publish(SUBJECT, payload, headers=headers)
            except APIError as error:
                # Another publisher wrote first: read again
                if error.err_code not in (10071, 10164):
                    raise
                continue
            self._telemetry.counters["checkpoints.kept"] += 1
            break
        self._telemetry.servers.ok(CHECKPOINTS)
