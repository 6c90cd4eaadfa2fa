"""Stores what relays report: acknowledgements in ClickHouse, the union of heartbeats in Redis.

An acknowledgement is settled in JetStream only after ClickHouse has stored it. So the stream is the
buffer while ClickHouse is away. Rows stored twice collapse in the table (ReplacingMergeTree).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from google.protobuf.message import DecodeError
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from spillway.v1.acknowledgement_pb2 import Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names

from spillway_publisher.bucket.bucket import LARGEST_VERSION
from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE as CLICKHOUSE_TROUBLE
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.clients.hot_state import HotState
from spillway_publisher.process.telemetry import CLICKHOUSE, Telemetry
from spillway_publisher.rules.presence import Presence, Unacceptable, check

BATCH = 500
FETCH_S = 2.0
RETRY_S = 1.0
M = TypeVar("M", Acknowledgement, Heartbeat)
Content = TypeVar("Content")


class Malformed(Exception):
    """A report is invalid. `reason` is the kind of problem; the text names key, value and limit."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def read_report(kind: type[M], data: bytes, subject: str, pattern: str, clusters: set[str]) -> M:
    """Decodes and checks one report. Pure. Raises Malformed."""
    try:
        message = kind.FromString(data)
        message.at.ToJsonString()
    except DecodeError as error:
        raise Malformed("undecodable", str(error)) from error
    except ValueError as error:
        raise Malformed("time", f"at: {error}") from error
    if message.cluster not in clusters:
        allowed = ", ".join(sorted(clusters))
        raise Malformed(
            "unknown_cluster", f"cluster: unknown cluster {message.cluster!r}; clusters: {allowed}"
        )
    if subject != pattern.format(cluster=message.cluster):
        raise Malformed("subject", f"cluster: {message.cluster!r} does not belong to subject {subject!r}")
    if message.ruleset_version >= LARGEST_VERSION:
        raise Malformed("version", f"ruleset_version: {message.ruleset_version}; must be below 2^53")
    return message


class Reports:
    """Two loops, `acks` and `heartbeats`.

    Both raise jetstream.TROUBLE. The caller must then reconnect and call again.
    """

    def __init__(
        self,
        clusters: set[str],
        hot_state: HotState,
        clickhouse: ClickHouse,
        telemetry: Telemetry,
    ) -> None:
        self._clusters = clusters
        self._hot_state, self._clickhouse, self._telemetry = hot_state, clickhouse, telemetry
        self._presences: dict[str, Presence] = {}  # by cluster
        # Clusters whose newest placement has not been noted for Redis yet
        self._unplaced: set[str] = set()
        self._caught_up = False  # whether the heartbeats that the stream held at the start are read
        self._server_at = 0.0  # Unix time of the NATS server's clock when time.monotonic() was 0

    async def acks(self, consumer: JetStreamContext.PullSubscription) -> None:
        """Stores acknowledgements for ever, and settles each after it is stored."""
        async for batch in batches(consumer):
            good = await self._sort_out(batch, self._acknowledgement_row)
            await self._store([row for _, row in good], batch)
            for message, _ in good:
                await message.ack()
            self._telemetry.counters["acks"] += len(good)
            for _, (_, cluster, *_, outcome, _) in good:
                self._telemetry.counters[f"acks.{outcome}.{cluster}"] += 1

    async def heartbeats(self, consumer: JetStreamContext.PullSubscription) -> None:
        """Takes heartbeats for ever, and places nothing until all those in the stream are read.

        A placement from the heartbeats of one relay alone would hide the Envoys of the others.
        """
        self._caught_up = False
        # The server's clock stamped the stored heartbeats, so it gives their age. Our clock may
        # differ.
        self._server_at = (await consumer.consumer_info()).created.timestamp() - time.monotonic()
        async for batch in batches(consumer):
            for message, heartbeat in await self._sort_out(batch, self._heartbeat):
                late = self._presences[heartbeat.cluster].until <= time.monotonic()
                self._telemetry.counters["heartbeats.late" if late else "heartbeats"] += 1
                await message.ack()
            self._caught_up = self._caught_up or batch[-1].metadata.num_pending == 0
            if self._caught_up:
                self._place()

    def _heartbeat(self, message: Msg) -> Heartbeat:
        """Takes a heartbeat into its cluster's placement. Raises Malformed."""
        pattern = names.NATS_SUBJECT_HEARTBEATS
        heartbeat = read_report(Heartbeat, message.data, message.subject, pattern, self._clusters)
        presence = self._presences.setdefault(heartbeat.cluster, Presence())
        now = time.monotonic()
        stored = message.metadata.timestamp.timestamp() - self._server_at
        at = now if self._caught_up else min(stored, now)
        try:
            check(heartbeat)
            # A redelivered heartbeat is older than those that have arrived since, so it is not
            # used.
            if message.metadata.num_delivered == 1 and presence.hear(heartbeat, at):
                self._unplaced.add(heartbeat.cluster)
                unix = time.time() - now
                self._telemetry.relays[heartbeat.cluster] = {r: unix + t for r, t in presence.relays.items()}
        except Unacceptable as error:
            raise Malformed(error.reason, str(error)) from error
        return heartbeat

    def placement(self) -> dict[str, frozenset[str]]:
        """Returns by cluster the services that have a live Envoy.

        Clusters whose relays are silent are left out.
        """
        known = {}
        for cluster, presence in self._live().items():
            if union := presence.placement(cluster):
                known[cluster] = frozenset(s.service for s in union.services if s.connected_envoys)
        return known

    def serving(self) -> dict[str, int]:
        """Returns by cluster the newest version that its relays serve.

        Clusters whose relays are silent are left out.
        """
        return {c: p.serving for c, p in self._live().items() if p.serving is not None}

    def trying(self) -> dict[str, int]:
        """Returns by cluster the version on trial that all of its relays serve; 0: none.

        Clusters whose relays are silent are left out.
        """
        return {cluster: presence.trying for cluster, presence in self._live().items()}

    def envoys(self) -> dict[str, frozenset[int]]:
        """Returns by cluster the hashes of the Envoys that its relays name.

        Clusters whose relays are silent are left out.
        """
        return {cluster: presence.envoys() for cluster, presence in self._live().items()}

    def _live(self) -> dict[str, Presence]:
        now = time.monotonic()
        return {c: p for c, p in self._presences.items() if self._caught_up and p.until > now}

    def _place(self) -> None:
        for cluster in self._unplaced:
            presence = self._presences[cluster]
            placement = presence.placement(cluster)
            if placement is not None:
                placement.at.FromMicroseconds(
                    int((time.time() - time.monotonic() + presence.latest_at) * 1e6)
                )
                self._hot_state.place(placement, presence.until)
        self._unplaced.clear()

    async def _sort_out(self, batch: list[Msg], read: Callable[[Msg], Content]) -> list[tuple[Msg, Content]]:
        """Returns the valid messages with their content. Counts and terminates the others."""
        good: list[tuple[Msg, Content]] = []
        for message in batch:
            try:
                good.append((message, read(message)))
            except Malformed as error:
                kind = message.subject.split(".")[1]
                sequence = message.metadata.sequence.stream
                self._telemetry.malformed(f"{kind}.{error.reason}", message.subject, sequence, str(error))
                await message.term()
        return good

    def _acknowledgement_row(self, message: Msg) -> tuple:
        pattern = names.NATS_SUBJECT_ACKS
        report = read_report(Acknowledgement, message.data, message.subject, pattern, self._clusters)
        try:
            return rows.acknowledgement_row(report)
        except ValueError as error:
            raise Malformed("value", str(error)) from error

    async def _store(self, acknowledgements: list[tuple], batch: list[Msg]) -> None:
        """Returns when ClickHouse has stored the rows, however long that takes."""
        if not acknowledgements:
            return
        first, last = (message.metadata.sequence.stream for message in (batch[0], batch[-1]))
        while True:
            try:
                statement = rows.sql("insert_acknowledgements")
                await self._clickhouse.insert(
                    statement, acknowledgements, f"acks-{first}-{last}-{len(batch)}"
                )
                self._telemetry.servers.ok(CLICKHOUSE)
                return
            except CLICKHOUSE_TROUBLE as error:
                self._telemetry.servers.failed(CLICKHOUSE, error)
                await asyncio.sleep(RETRY_S)


async def batches(
    consumer: JetStreamContext.PullSubscription, also_empty: bool = False
) -> AsyncIterator[list[Msg]]:
    """Yields what arrives, at least one message at a time.

    With `also_empty` it also yields an empty list whenever nothing arrived for FETCH_S.
    """
    while True:
        batch: list[Msg] = []
        with contextlib.suppress(TimeoutError):
            # Empty when the server ends the request early, as when it is restarted.
            batch = await consumer.fetch(BATCH, timeout=FETCH_S)
        if batch or also_empty:
            yield batch
        if not batch:
            # Raises when a server that lost its data has lost the consumer
            await consumer.consumer_info()
