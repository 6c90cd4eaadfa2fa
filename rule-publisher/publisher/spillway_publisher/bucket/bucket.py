"""The bucket of rulesets, and the one place where versions are given.

A version is the time in milliseconds, and above every version that was ever seen. It is claimed by
writing the claim key, the first cluster's by name, with compare-and-set on its revision: of two
publishers that both computed the next one fails, reads again and takes another. The other keys follow,
each with compare-and-set and only over a lower version, so a slow publisher never covers a newer
version. Relays take nothing that is not above what they took before; since versions follow the clock,
they go on above that when the bucket is lost, or brought back from an older copy. The claim key's
history says which proposal got which version, across restarts and between publishers. Every value
carries a signature, and one without is not seen here at all (values.py).
"""

import asyncio
import re
import time

from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import APIError
from spillway.v1.ruleset_pb2 import Ruleset

from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.values import SUBJECT, Entry, Stored, Values
from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.rules.fences import Fences

HISTORY = 64  # versions kept per cluster: JetStream's maximum for a bucket
LARGEST_VERSION = 2**53  # above it relays cannot tell versions apart
_WRONG_SEQUENCE = (10071, 10164)  # JSStreamWrongLastSequenceErrF, JSStreamWrongLastSequenceConstantErr


class ConflictError(Exception):
    """Another publisher wrote first: read again and decide again."""


class Bucket:
    """A copy of the bucket's present values, and the writes that keep versions increasing."""

    def __init__(self, clusters: list[str], keys: Keys, telemetry: Telemetry) -> None:
        self._clusters = sorted(clusters)
        self._keys, self._values = keys, Values(keys, telemetry)
        self._entries: dict[str, Entry] = {}
        self._versions: dict[str, int] = {}  # ruleset id -> version, from the claim key's history
        self._fences = Fences()
        self._floor = 0
        self._lock = asyncio.Lock()  # a refresh never puts back what a write replaced
        self._js: JetStreamContext | None = None

    def attach(self, js: JetStreamContext) -> None:
        """Reads and writes go through this connection from now on; nothing else is called before."""
        self._js = js

    def in_force(self) -> dict[str, Ruleset]:
        """By cluster of the topology, what its relay is told to serve."""
        return {c: e.ruleset for c, e in self._entries.items() if c in self._clusters and e.ruleset.version}

    def version_of(self, ruleset_id: str) -> int | None:
        """The version that a proposal got already, by any publisher (of the last 64)."""
        return self._versions.get(ruleset_id)

    @property
    def fences(self) -> Fences:
        """The newest fencing token of each origin that a version was published under (of the last 64)."""
        return self._fences

    @property
    def newest_version(self) -> int:
        """The highest version that was ever seen."""
        return self._floor

    def missing(self, version: int) -> list[str]:
        """Clusters whose key is older than this version."""
        return [c for c in self._clusters if self._version(c) < version]

    def next_version(self) -> int:
        """The time (Unix, ms), and above everything that was ever seen in the bucket, of clusters that left
        the topology too."""
        return max(self._floor + 1, time.time_ns() // 1_000_000)

    async def history(self, cluster: str) -> list[Stored]:
        """The cluster's versions, oldest first (of the last 64). Raises jetstream.TROUBLE."""
        return await self._values.history(self._js, cluster)

    async def sign_again(self) -> int:
        """Values that another trusted key signed get the present key's signature and stay what they are.
        Gives how many. Raises jetstream.TROUBLE."""
        async with self._lock:
            await self._read_all()
            old = {c: e for c, e in self._entries.items() if e.ruleset.version and e.key_id != self._keys.id}
            for cluster, entry in old.items():
                try:
                    await self._put(cluster, entry.payload, entry.ruleset)
                except ConflictError:
                    continue  # another publisher has written a newer one
            return len(old)

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
        keys = sorted({*self._clusters, *(await self._values.names(self._js))})
        found = await asyncio.gather(*(self._values.latest(self._js, key) for key in keys))
        self._entries = dict(zip(keys, found, strict=True))
        for cluster in keys:
            self._raise_floor(self._version(cluster))

    async def _read_versions(self) -> None:
        history = await self.history(self.claim_cluster)
        self._versions = {stored.ruleset.id: stored.ruleset.version for stored in history}
        for stored in history:
            self._raise_floor(stored.ruleset.version)
            self._fences.read(stored.ruleset, time.time_ns())

    def _raise_floor(self, version: int) -> None:
        self._floor = max(self._floor, version)

    def learn(self, checkpoint: Ruleset) -> None:
        """Versions go on above it, and its fencing token counts, though the bucket may have lost both."""
        self._raise_floor(checkpoint.version)
        self._fences.read(checkpoint, time.time_ns())

    async def claim(self, part: Ruleset) -> None:
        """Writes the claim key: from here on the version is this proposal's. Raises ConflictError."""
        async with self._lock:
            # A refresh since the version was computed may have seen another publisher's: its revision
            # would let this write pass.
            if part.version <= self._floor:
                raise ConflictError(self.claim_cluster)
            await self._write(self.claim_cluster, part)
        self._versions[part.id] = part.version
        self._fences.read(part, time.time_ns())
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
        await self._put(cluster, part.SerializeToString(deterministic=True), part)
        self._raise_floor(part.version)

    async def _put(self, cluster: str, payload: bytes, ruleset: Ruleset) -> None:
        """What KeyValue.update does, with the signature's headers. Raises ConflictError."""
        last = self._entries[cluster].revision if cluster in self._entries else 0
        headers = self._keys.sign(cluster, payload)
        headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(last)
        try:
            written = await self._js.publish(SUBJECT + cluster, payload, headers=headers)
        except APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                raise ConflictError(cluster) from error
            raise
        self._entries[cluster] = Entry(written.seq, ruleset, payload, self._keys.id)


def is_bucket_key(name: str) -> bool:
    """Whether NATS takes a cluster's name as one subject token and as a key of the bucket."""
    return re.fullmatch(r"[-/_=a-zA-Z0-9]+", name) is not None
