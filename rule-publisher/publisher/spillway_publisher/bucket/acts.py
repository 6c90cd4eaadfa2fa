"""The bucket of accepted acts: one signed value per act, which NATS forgets after two days.

Each value is signed like a ruleset, with its subject in place of the cluster. Values that no
trusted key signed are ignored and counted. A write is a compare-and-set on the key's revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nats.js import JetStreamContext
from nats.js.api import Header, RawStreamMsg
from nats.js.errors import APIError, NotFoundError
from nats.js.kv import KV_DEL, KV_OP, KV_PURGE
from spillway_contracts import ContractError, names
from spillway_contracts.acts import KeptAct

from spillway_publisher.bucket.bucket import ConflictError
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.signing import UnverifiedError
from spillway_publisher.bucket.values import number
from spillway_publisher.process.telemetry import Telemetry

STREAM, SUBJECT = f"KV_{names.NATS_BUCKET_ACTS}", f"$KV.{names.NATS_BUCKET_ACTS}."
REFUSED = "act_value"  # prefix of counters: malformed.act_value.<reason>
# JSStreamWrongLastSequenceErrF, JSStreamWrongLastSequenceConstantErr
_WRONG_SEQUENCE = (10071, 10164)


@dataclass(frozen=True)
class _Value:
    """A key's newest value. `act` None: deleted, or not signed by a trusted key."""

    revision: int
    act: KeptAct | None
    key_id: str = ""


class ActsBucket:
    """A copy of the bucket. It stays when NATS is away, and when NATS has lost the bucket."""

    def __init__(self, keys: Keys, telemetry: Telemetry) -> None:
        self._keys, self._telemetry = keys, telemetry
        self._values: dict[str, _Value] = {}
        self._next = 1  # number of the first message that has not been read
        self.kept: Mapping[str, KeptAct] = {}

    async def load(self, js: JetStreamContext, now: datetime) -> None:
        """Reads the whole bucket.

        Writes acts in force that the bucket has lost, and signs again those that an earlier key has
        signed. Raises jetstream.TROUBLE.
        """
        known = self.kept
        values, self._next = await self._read(js, 1)
        self._values = values
        # One that is there and not trusted is not restored: its key may have been stolen.
        lost = {key: act for key, act in known.items() if key not in values and act.in_force(now)}
        self._copy(lost)
        foreign = {
            key: value.act
            for key, value in values.items()
            if value.act is not None and value.act.in_force(now) and value.key_id != self._keys.id
        }
        for act in (lost | foreign).values():
            try:
                await self.put(js, act)
            except ConflictError:
                await self.refresh(js)  # the other publisher has written it

    async def refresh(self, js: JetStreamContext) -> None:
        """Reads what was written since. Raises jetstream.TROUBLE."""
        values, self._next = await self._read(js, self._next)
        self._values |= values
        if values:
            self._copy({key: act for key, act in self.kept.items() if key not in self._values})

    async def read(self, js: JetStreamContext) -> Mapping[str, KeptAct]:
        """Returns the acts of the bucket, and writes nothing. Raises jetstream.TROUBLE."""
        self._values, self._next = await self._read(js, 1)
        self._copy({})
        return self.kept

    async def put(self, js: JetStreamContext, kept: KeptAct) -> None:
        """Writes an act. Raises ConflictError and jetstream.TROUBLE."""
        key, payload = kept.act.id, kept.to_json().encode()
        last = self._values[key].revision if key in self._values else 0
        headers = self._keys.sign(SUBJECT + key, payload)
        headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(last)
        try:
            written = await js.publish(SUBJECT + key, payload, headers=headers)
        except APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                raise ConflictError(key) from error
            raise
        self._values[key] = _Value(written.seq, kept, self._keys.id)
        self._copy({key: act for key, act in self.kept.items() if key not in self._values})

    def forget(self, before: datetime) -> None:
        """Forgets acts that expired before this time, as NATS does."""
        old = {key for key, act in self.kept.items() if act.expires < before}
        if old:
            self._values = {key: value for key, value in self._values.items() if key not in old}
            self.kept = {key: act for key, act in self.kept.items() if key not in old}

    def _copy(self, lost: Mapping[str, KeptAct]) -> None:
        read = {key: value.act for key, value in self._values.items() if value.act is not None}
        self.kept = {**lost, **read}

    async def _read(self, js: JetStreamContext, sequence: int) -> tuple[dict[str, _Value], int]:
        """Returns the newest value of each key from this number on, and the next number."""
        values: dict[str, _Value] = {}
        while True:
            try:
                found = await js.get_msg(STREAM, seq=sequence, subject=SUBJECT + ">", next=True)
            except NotFoundError:
                return values, sequence
            sequence = number(found) + 1
            assert found.subject is not None  # as of `number`
            values[found.subject.removeprefix(SUBJECT)] = self._opened(found, found.subject)

    def _opened(self, found: RawStreamMsg, subject: str) -> _Value:
        payload, revision = found.data or b"", number(found)
        if (found.headers or {}).get(KV_OP) in (KV_DEL, KV_PURGE):
            return _Value(revision, None)
        try:
            key_id = self._keys.verify(subject, payload, found.headers)
            return _Value(revision, KeptAct.from_json(payload), key_id)
        except UnverifiedError as error:
            self._telemetry.malformed(f"{REFUSED}.{error.reason}", subject, revision, str(error))
        except ContractError as error:
            self._telemetry.malformed(f"{REFUSED}.undecodable", subject, revision, str(error))
        return _Value(revision, None)
