"""Reads the values of the bucket of rulesets that a trusted key has signed.

Anyone with write access to the bus can put anything into the bucket, including its former values.
So a value is valid only with a trusted signature for its key and a version that relays accept. Any
other value is ignored. It is counted by reason, and the first of each reason is logged.
"""

import time
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.message import DecodeError
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError
from nats.js.kv import KV_DEL, KV_OP, KV_PURGE
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names

from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.signing import UnverifiedError
from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.rules.checks import timestamp_problems

STREAM = f"KV_{names.NATS_BUCKET_RULESETS}"
SUBJECT = f"$KV.{names.NATS_BUCKET_RULESETS}."
REFUSED = "bucket_value"  # prefix of counters: malformed.bucket_value.<reason>
_COUNTED = 10_000


@dataclass(frozen=True)
class Entry:
    """The current value of one key. `ruleset.version` is 0 when the key holds no valid value."""

    revision: int
    ruleset: Ruleset
    payload: bytes = b""
    key_id: str = ""  # id of the key that signed


@dataclass(frozen=True)
class Stored:
    """One value of a key's history."""

    ruleset: Ruleset
    at: datetime


class Values:
    """Reads the bucket. Every method raises jetstream.TROUBLE."""

    def __init__(self, keys: Keys, telemetry: Telemetry) -> None:
        self._keys, self._telemetry = keys, telemetry
        self._counted: set[tuple[str, int, datetime | None]] = set()

    async def names(self, js: JetStreamContext) -> list[str]:
        """Returns the names of the bucket's keys, including deleted ones."""
        info = await js.stream_info(STREAM, subjects_filter=">")
        return sorted(subject.removeprefix(SUBJECT) for subject in info.state.subjects or {})

    async def latest(self, js: JetStreamContext, key: str) -> Entry:
        """Returns the key's current value, with the revision that the next write must expect."""
        try:
            found = await js.get_msg(STREAM, subject=SUBJECT + key)
        except NotFoundError:
            return Entry(0, Ruleset())
        return self._opened(found, key)

    async def history(self, js: JetStreamContext, key: str) -> list[Stored]:
        """Returns the key's values ordered by version.

        Each version occurs once, although an old value may have been written again.
        """
        found_by_version: dict[int, Stored] = {}
        sequence = 1
        while True:
            try:
                found = await js.get_msg(STREAM, seq=sequence, subject=SUBJECT + key, next=True)
            except NotFoundError:
                return [stored for _, stored in sorted(found_by_version.items())]
            sequence = number(found) + 1
            ruleset = self._opened(found, key).ruleset
            if ruleset.version:
                assert found.time is not None  # as of `number`
                found_by_version.setdefault(ruleset.version, Stored(ruleset, found.time))

    def _opened(self, found: RawStreamMsg, key: str) -> Entry:
        payload, nothing = found.data or b"", Entry(number(found), Ruleset())
        if (found.headers or {}).get(KV_OP) in (KV_DEL, KV_PURGE):
            return nothing
        try:
            key_id = self._keys.verify(key, payload, found.headers)
        except UnverifiedError as error:
            self._count(found, error.reason, str(error))
            return nothing
        ruleset = decode(payload)
        if ruleset is None:
            self._count(found, "undecodable", "not a spillway.v1.Ruleset with a version")
            return nothing
        if ruleset.version > time.time_ns() // 1_000_000 + names.VALUE_VERSION_AHEAD_MS:
            self._count(found, "ahead", f"version {ruleset.version} is over an hour ahead; relays refuse it")
            return nothing
        return Entry(number(found), ruleset, payload, key_id)

    def _count(self, found: RawStreamMsg, reason: str, detail: str) -> None:
        """Counts each invalid value once, however often it is read."""
        subject, sequence = found.subject, number(found)
        assert subject is not None  # as of `number`
        this = (subject, sequence, found.time)
        if this in self._counted:
            return
        if len(self._counted) >= _COUNTED:
            self._counted.clear()
        self._counted.add(this)
        self._telemetry.malformed(f"{REFUSED}.{reason}", subject, sequence, detail)


def number(found: RawStreamMsg) -> int:
    """Returns the message's sequence number in its stream."""
    assert found.seq is not None  # NATS sends subject, number and time with every stored message
    return found.seq


def decode(value: bytes) -> Ruleset | None:
    """Returns the ruleset, or None unless it decodes, has a version and has valid times."""
    try:
        ruleset = Ruleset.FromString(value)
    except DecodeError:
        return None
    return ruleset if ruleset.version and not timestamp_problems(ruleset) else None
