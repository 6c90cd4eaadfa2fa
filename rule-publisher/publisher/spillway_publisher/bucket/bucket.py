"""The bucket of rulesets, and the only place where versions are assigned.

A version is the time in milliseconds, and higher than every version seen before. A publisher claims
it by writing the claim key, which is the key of the first cluster by name. The write is a
compare-and-set on that key's revision. When two publishers compute the same next version, one of
them fails, reads again and takes another version.

The other keys follow, each with compare-and-set and only over a lower version. So a slow publisher
never replaces a newer version. Relays accept only versions above all that they accepted before.
Because versions follow the clock, new ones are above those even when the bucket is lost or restored
from an older copy.

The history of the claim key records which proposal got which version, across restarts and between
publishers. Every value carries a signature. Values without a valid one are ignored (values.py).
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
LARGEST_VERSION = 2**53  # relays cannot distinguish versions above it
# JSStreamWrongLastSequenceErrF, JSStreamWrongLastSequenceConstantErr
_WRONG_SEQUENCE = (10071, 10164)


class ConflictError(Exception):
    """Another publisher wrote first. The caller must read again and decide again."""


class Bucket:
    """A copy of the bucket's current values, and the writes that keep versions increasing."""

    def __init__(self, clusters: list[str], keys: Keys, telemetry: Telemetry) -> None:
        self._clusters = sorted(clusters)
        self._keys, self._values = keys, Values(keys, telemetry)
        self._entries: dict[str, Entry] = {}
        self._versions: dict[str, int] = {}  # ruleset id -> version, from the claim key's history
        self._fences = Fences()
        self._floor = 0
        # So that a refresh does not restore an entry that a write has replaced
        self._lock = asyncio.Lock()
        self._js: JetStreamContext | None = None

    def attach(self, js: JetStreamContext) -> None:
        """Makes reads and writes use this connection from now on. It must be called first."""
        self._js = js

    @property
    def _connection(self) -> JetStreamContext:
        assert self._js is not None  # `attach` is called before every read and write
        return self._js

    def in_force(self) -> dict[str, Ruleset]:
        """Returns by cluster the ruleset that its relay has to serve.

        Clusters outside the topology are left out.
        """
        return {c: e.ruleset for c, e in self._entries.items() if c in self._clusters and e.ruleset.version}

    def version_of(self, ruleset_id: str) -> int | None:
        """Returns the version that any publisher assigned to the proposal, or None.

        Only the last 64 versions are known.
        """
        return self._versions.get(ruleset_id)

    @property
    def fences(self) -> Fences:
        """The newest fencing token of each origin, from at least the last 64 versions."""
        return self._fences

    @property
    def newest_version(self) -> int:
        """The highest version seen so far."""
        return self._floor

    def missing(self, version: int) -> list[str]:
        """Returns the clusters whose key holds a version lower than this one."""
        return [c for c in self._clusters if self._version(c) < version]

    def next_version(self) -> int:
        """Returns the current time (Unix, ms), or the highest version seen plus 1 if that is more.

        Versions of clusters that have left the topology count too.
        """
        return max(self._floor + 1, time.time_ns() // 1_000_000)

    async def history(self, cluster: str) -> list[Stored]:
        """Returns the cluster's versions, oldest first (at most the last 64).

        Raises jetstream.TROUBLE.
        """
        return await self._values.history(self._connection, cluster)

    async def sign_again(self) -> int:
        """Signs with the current key every value that another trusted key has signed.

        The values do not change. Returns how many there were. Raises jetstream.TROUBLE.
        """
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
        """Reads every key and the history of the claim key. Raises jetstream.TROUBLE."""
        async with self._lock:
            await self._read_all()
            await self._read_versions()

    async def refresh(self) -> None:
        """Reads every key, and also the history if another publisher has claimed a version.

        Raises jetstream.TROUBLE.
        """
        async with self._lock:
            before = self._entries.get(self.claim_cluster)
            await self._read_all()
            if before is None or before.revision != self._entries[self.claim_cluster].revision:
                await self._read_versions()

    async def _read_all(self) -> None:
        keys = sorted({*self._clusters, *(await self._values.names(self._connection))})
        found = await asyncio.gather(*(self._values.latest(self._connection, key) for key in keys))
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
        """Notes version and fencing token of a checkpoint, which the bucket may have lost.

        Later versions are above the checkpoint's.
        """
        self._raise_floor(checkpoint.version)
        self._fences.read(checkpoint, time.time_ns())

    async def claim(self, part: Ruleset) -> None:
        """Writes the claim key, which assigns the version to this proposal.

        Raises ConflictError.
        """
        async with self._lock:
            # Since the version was computed, a refresh may have read another publisher's version.
            # The compare-and-set would then succeed, because it uses the refreshed revision.
            if part.version <= self._floor:
                raise ConflictError(self.claim_cluster)
            await self._write(self.claim_cluster, part)
        self._versions[part.id] = part.version
        self._fences.read(part, time.time_ns())
        if len(self._versions) > 2 * HISTORY:  # a restart would know HISTORY versions too
            self._versions = dict(sorted(self._versions.items(), key=lambda item: item[1])[-HISTORY:])

    async def write(self, cluster: str, part: Ruleset) -> None:
        """Writes one cluster's key unless it holds this or a newer version.

        Raises ConflictError.
        """
        async with self._lock:
            if self._version(cluster) < part.version:
                await self._write(cluster, part)

    @property
    def claim_cluster(self) -> str:
        """The cluster whose key a publisher writes first to claim a version."""
        return self._clusters[0]

    def _version(self, cluster: str) -> int:
        entry = self._entries.get(cluster)
        return entry.ruleset.version if entry else 0

    async def _write(self, cluster: str, part: Ruleset) -> None:
        await self._put(cluster, part.SerializeToString(deterministic=True), part)
        self._raise_floor(part.version)

    async def _put(self, cluster: str, payload: bytes, ruleset: Ruleset) -> None:
        """Does what KeyValue.update does, and adds the signature's headers.

        Raises ConflictError.
        """
        last = self._entries[cluster].revision if cluster in self._entries else 0
        headers = self._keys.sign(cluster, payload)
        headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(last)
        try:
            written = await self._connection.publish(SUBJECT + cluster, payload, headers=headers)
        except APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                raise ConflictError(cluster) from error
            raise
        self._entries[cluster] = Entry(written.seq, ruleset, payload, self._keys.id)


def is_bucket_key(name: str) -> bool:
    """Returns whether NATS accepts the cluster's name as one subject token and as a bucket key."""
    return re.fullmatch(r"[-/_=a-zA-Z0-9]+", name) is not None
