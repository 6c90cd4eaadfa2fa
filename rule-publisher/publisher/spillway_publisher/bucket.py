"""The bucket of rulesets, and the one place where versions are given.

A version is claimed by writing the claim key, the first cluster's by name, with compare-and-set on its
revision: of two publishers that both computed max + 1 one fails, reads again and takes the next. The
other keys follow, each with compare-and-set and only over a lower version, so a slow publisher never
covers a newer version. The rulesets themselves are thus the only record of versions: nothing beside
them (a counter in a second bucket) can be lost, restored or rolled back apart from them. The claim
key's history says which proposal got which version, across restarts and between publishers.
"""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.message import DecodeError
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KV_DEL, KV_OP, KV_PURGE, KeyValue
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import names

from spillway_publisher.checks import timestamp_problems
from spillway_publisher.telemetry import Telemetry

HISTORY = 64  # versions kept per cluster: JetStream's maximum for a bucket
_STREAM = f"KV_{names.NATS_BUCKET_RULESETS}"
_SUBJECT = f"$KV.{names.NATS_BUCKET_RULESETS}."
LARGEST_VERSION = 2**63


class ConflictError(Exception):
    """Another publisher wrote first: read again and decide again."""


@dataclass(frozen=True)
class Entry:
    """One key now; version 0 when it holds nothing that decodes."""

    revision: int
    ruleset: Ruleset


@dataclass(frozen=True)
class Stored:
    """One value of a key's history."""

    ruleset: Ruleset
    at: datetime


class Bucket:
    """A copy of the bucket's present values, and the writes that keep versions increasing."""

    def __init__(self, clusters: list[str], telemetry: Telemetry) -> None:
        self._clusters = sorted(clusters)
        self._telemetry = telemetry
        self._entries: dict[str, Entry] = {}
        self._versions: dict[str, int] = {}  # ruleset id -> version, from the claim key's history
        self._fences: dict[Origin, int] = {}
        self._floor = 0
        self._lock = asyncio.Lock()  # a refresh never puts back what a write replaced
        self._js: JetStreamContext | None = None
        self._kv: KeyValue | None = None

    def attach(self, js: JetStreamContext, kv: KeyValue) -> None:
        """Reads and writes go through this connection from now on; nothing else is called before."""
        self._js, self._kv = js, kv

    def in_force(self) -> dict[str, Ruleset]:
        """By cluster of the topology, what its relay is told to serve."""
        return {c: e.ruleset for c, e in self._entries.items() if c in self._clusters and e.ruleset.version}

    def version_of(self, ruleset_id: str) -> int | None:
        """The version that a proposal got already, by any publisher (of the last 64)."""
        return self._versions.get(ruleset_id)

    def fences(self) -> dict[Origin, int]:
        """The newest fencing token of each origin that a version was published under (of the last 64)."""
        return dict(self._fences)

    def missing(self, version: int) -> list[str]:
        """Clusters whose key is older than this version."""
        return [c for c in self._clusters if self._version(c) < version]

    def next_version(self) -> int:
        """Above everything that was ever seen in the bucket (of clusters that left the topology too), and
        above what relays serve."""
        return self._floor + 1

    def raise_floor(self, version: int) -> None:
        """This version exists: even if the bucket were lost, numbering goes on above what relays serve."""
        if self._floor < version < LARGEST_VERSION:
            self._floor = version

    async def load(self) -> None:
        """Reads every key and the claim key's history. Raises jetstream.TROUBLE."""
        async with self._lock:
            await self._read_all()
            await self._read_versions()

    async def refresh(self) -> None:
        """Reads every key, and the history if another publisher claimed. Raises jetstream.TROUBLE."""
        async with self._lock:
            before = self._entries.get(self.claim_cluster)
            await self._read_all()
            if before is None or before.revision != self._entries[self.claim_cluster].revision:
                await self._read_versions()

    async def _read_all(self) -> None:
        keys = sorted({*self._clusters, *(await read_keys(self._js))})
        found = await asyncio.gather(*(self._read(key) for key in keys))
        self._entries = dict(zip(keys, found, strict=True))
        for cluster in keys:
            self.raise_floor(self._version(cluster))

    async def _read_versions(self) -> None:
        history = await read_history(self._js, self.claim_cluster, self._telemetry)
        self._versions = {stored.ruleset.id: stored.ruleset.version for stored in history}
        for stored in history:
            self._raise_fence(stored.ruleset)

    def _raise_fence(self, ruleset: Ruleset) -> None:
        origin = ruleset.origin
        self._fences[origin] = max(self._fences.get(origin, 0), ruleset.fencing_token)

    async def claim(self, part: Ruleset) -> None:
        """Writes the claim key: from here on the version is this proposal's. Raises ConflictError."""
        async with self._lock:
            # A refresh since the version was computed may have seen another publisher's: its revision
            # would let this write pass.
            if part.version <= self._floor:
                raise ConflictError(self.claim_cluster)
            await self._write(self.claim_cluster, part)
        self._versions[part.id] = part.version
        self._raise_fence(part)
        if len(self._versions) > 2 * HISTORY:  # as many as a restart would still know
            self._versions = dict(sorted(self._versions.items(), key=lambda item: item[1])[-HISTORY:])

    async def write(self, cluster: str, part: Ruleset) -> None:
        """Writes one cluster's key unless it holds this or a newer version. Raises ConflictError."""
        async with self._lock:
            if self._version(cluster) < part.version:
                await self._write(cluster, part)

    @property
    def claim_cluster(self) -> str:
        return self._clusters[0]

    def _version(self, cluster: str) -> int:
        entry = self._entries.get(cluster)
        return entry.ruleset.version if entry else 0

    async def _write(self, cluster: str, part: Ruleset) -> None:
        last = self._entries[cluster].revision if cluster in self._entries else 0
        try:
            revision = await self._kv.update(cluster, part.SerializeToString(deterministic=True), last=last)
        except KeyWrongLastSequenceError as error:
            raise ConflictError(cluster) from error
        self._entries[cluster] = Entry(revision, part)
        self.raise_floor(part.version)

    async def _read(self, key: str) -> Entry:
        try:
            found = await self._kv.get(key)
        except KeyNotFoundError as error:
            # A deleted key keeps a marker, whose revision the next write must name.
            return Entry(error.entry.revision if error.entry else 0, Ruleset())
        ruleset = decode(found.value)
        if ruleset is None:
            self._telemetry.malformed("bucket_value", key, found.revision, "not a spillway.v1.Ruleset")
        return Entry(found.revision, ruleset or Ruleset())


def is_bucket_key(name: str) -> bool:
    """Whether NATS takes a cluster's name as one subject token and as a key of the bucket."""
    return re.fullmatch(r"[-/_=a-zA-Z0-9]+", name) is not None


def decode(value: bytes | None) -> Ruleset | None:
    """A value of the bucket, or None when it is no Ruleset with a version and valid times."""
    try:
        ruleset = Ruleset.FromString(value or b"")
    except DecodeError:
        return None
    return ruleset if ruleset.version and not timestamp_problems(ruleset) else None


async def read_keys(js: JetStreamContext) -> list[str]:
    """Names of the bucket's keys, deleted ones included. Raises jetstream.TROUBLE."""
    info = await js.stream_info(_STREAM, subjects_filter=">")
    return sorted(subject.removeprefix(_SUBJECT) for subject in info.state.subjects or {})


async def read_latest(js: JetStreamContext, key: str) -> Ruleset | None:
    """What the key holds; None when that is no ruleset. Raises jetstream.TROUBLE."""
    try:
        return decode((await js.get_msg(_STREAM, subject=_SUBJECT + key)).data)
    except NotFoundError:
        return None


async def read_history(js: JetStreamContext, key: str, telemetry: Telemetry) -> list[Stored]:
    """The key's values, oldest first, without what does not decode. Raises jetstream.TROUBLE."""
    history, sequence = [], 1
    while True:
        try:
            found = await js.get_msg(_STREAM, seq=sequence, subject=_SUBJECT + key, next=True)
        except NotFoundError:
            return history
        sequence = found.seq + 1
        if (found.headers or {}).get(KV_OP) in (KV_DEL, KV_PURGE):
            continue
        ruleset = decode(found.data)
        if ruleset is None:
            telemetry.malformed(
                "bucket_value", found.subject, found.seq, "not a spillway.v1.Ruleset with a version"
            )
        else:
            history.append(Stored(ruleset, found.time))
