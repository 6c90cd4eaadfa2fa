"""Notes when every connected Envoy has a version in force: the state `acknowledged`."""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from nats.js import JetStreamContext
from spillway.v1.acknowledgement_pb2 import Acknowledgement
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names

from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE, ClickHouse
from spillway_publisher.clients.history import History
from spillway_publisher.rules.answers import Answers
from spillway_publisher.service.reports import Malformed, batches, read_report

ASK_AGAIN_S = 2.0


class Acknowledging:
    """Reads all acknowledgements, beside the publisher that stores them, and the bucket's state.

    `in_force`: returns the rulesets by cluster. `connected`: returns the Envoys that relays name,
    by cluster.
    """

    def __init__(
        self,
        clusters: set[str],
        in_force: Callable[[], Mapping[str, Ruleset]],
        connected: Callable[[], Mapping[str, frozenset[int]]],
        history: History,
        clickhouse: ClickHouse,
    ) -> None:
        self._clusters, self._in_force, self._connected = clusters, in_force, connected
        self._history, self._newest = history, NewestNoted(clickhouse)
        self.answers = Answers()

    async def run(self, consumer: JetStreamContext.PullSubscription) -> None:
        """Reads for ever. Raises jetstream.TROUBLE."""
        async for batch in batches(consumer, also_empty=True):
            for message in batch:
                try:
                    answer = read_report(
                        Acknowledgement,
                        message.data,
                        message.subject,
                        names.NATS_SUBJECT_ACKS,
                        self._clusters,
                    )
                    rows.acknowledgement_row(answer)  # its checks
                except (Malformed, ValueError):
                    continue  # counted where it is stored
                self.answers.take(answer)
            self._note()

    def _note(self) -> None:
        """Adds the row once per version, with the time at which the last Envoy answered.

        A version that not every cluster has is still being written. After a start, nothing is noted
        before it is known what was noted until then: a row that is written again would have the
        time at which Envoys came that had not been there.
        """
        in_force, connected = self._in_force(), self._connected()
        versions = {ruleset.version for ruleset in in_force.values()}
        if set(in_force) != self._clusters or len(versions) != 1:
            return
        (version,) = versions
        self.answers.forget(version, connected)
        if (since := self.answers.since(version, connected)) is None or not self._newest.rise(version):
            return
        at = datetime.fromtimestamp(since / 1e9, UTC)
        reason = _reason(self._clusters, connected)
        self._history.reached(next(iter(in_force.values())), version, rows.ACKNOWLEDGED, reason, at)


class NewestNoted:
    """The newest version that has the row, of any publisher. Asks ClickHouse once."""

    def __init__(self, clickhouse: ClickHouse) -> None:
        self._clickhouse = clickhouse
        self._version: int | None = None  # None: not known yet
        self._asking: asyncio.Task[list[tuple]] | None = None
        self._asked_at = float("-inf")

    def rise(self, version: int) -> bool:
        """Returns whether the version is known to be newer, and then takes its place."""
        if self._version is None:
            self._version = self._answer()
        if self._version is None or version <= self._version:
            return False
        self._version = version
        return True

    def _answer(self) -> int | None:
        """Returns ClickHouse's answer, or None until there is one. Never waits for it."""
        if self._asking is not None and self._asking.done():
            done, self._asking = self._asking, None
            try:
                return int(done.result()[0][0])
            except TROUBLE:
                pass  # asked again
        if self._asking is None and time.monotonic() - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._clickhouse.select(rows.sql("noted"), {}))
        return None


def _reason(clusters: set[str], connected: Mapping[str, frozenset[int]]) -> str:
    silent = sorted(cluster for cluster in clusters if not connected.get(cluster))
    reason = f"by all {sum(map(len, connected.values()))} connected Envoys"
    return f"{reason}; none is known in {', '.join(silent)}" if silent else reason
