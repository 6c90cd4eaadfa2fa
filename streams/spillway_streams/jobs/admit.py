"""admit: copies messages from the clusters' topics to the topics of all clusters.

Each copy has a header that names the cluster whose topic the message was in. Values are unchanged
and go to the same partition, in order. Every partition of every cluster's topic has a lane of its
own, with a bounded queue and one message being sent at a time. A lane that is slow, blocked or
flooded therefore holds up only itself. An offset is committed once its message is acknowledged. The
commit notes where the log of all clusters was. A successor looks there for what was admitted after
the commit, and does not admit it twice.
"""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import NamedTuple

import faust
from faust.types import TP

from spillway_streams.clients.dead_letters import Origin
from spillway_streams.clients.sending import Message, Sender, TooLargeError
from spillway_streams.clients.transport import Consumer, Start
from spillway_streams.ingest import admission
from spillway_streams.ingest.offsets import Offsets, Verdict
from spillway_streams.jobs import admitted, runner
from spillway_streams.process import cluster_topics, health
from spillway_streams.process.config import AdmitSettings
from spillway_streams.topics import topics

log = logging.getLogger("spillway.admit")
_COMMIT_S, _TOPICS_S, _LAG_S = 0.5, 5.0, 1.0
_BEHIND_S = 10.0  # a cluster that is this far behind is named in the log
# Limits of one lane's queue: messages, and bytes. A fetch of at most 1 MiB (compressed) comes on
# top.
_MAX_WAITING, _MAX_BYTES = 64, 4 << 20
# Partitions that are added to a topic while the job runs are known after this time.
_METADATA_MS = 10_000
_OPTIONS = {
    "producer_compression_type": "zstd",
    "consumer_metadata_max_age_ms": _METADATA_MS,
    "producer_metadata_max_age_ms": _METADATA_MS,
}


class Waiting(NamedTuple):
    """A message that waits in a lane. `timestamp`: its Kafka timestamp in Unix seconds."""

    offset: int
    timestamp: float
    value: bytes


@dataclass
class Lane:
    """One partition of a cluster's topic.

    Every message before offset `done` is in the topic of all clusters. `mark` was the end of that
    topic's partition then.
    """

    tp: TP
    source: cluster_topics.Source
    offsets: Offsets
    committed: int
    note: str
    done: int
    mark: int | None = None
    waiting: deque[Waiting] = field(default_factory=deque)
    size: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task | None = None

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= _MAX_WAITING or self.size >= _MAX_BYTES

    @property
    def merged(self) -> TP:
        return TP(self.source.merged, self.tp.partition)

    def put(self, message: Waiting) -> None:
        """Appends a message to the queue."""
        self.waiting.append(message)
        self.size += len(message.value)
        self.arrived.set()

    async def next(self) -> Waiting:
        """Waits for the oldest message and returns it. It stays in the queue until `pop`."""
        while not self.waiting:
            self.arrived.clear()
            await self.arrived.wait()
        return self.waiting[0]

    def pop(self) -> None:
        """Removes the oldest message, which is done."""
        message = self.waiting.popleft()
        self.size -= len(message.value)
        self.done = max(self.done, message.offset + 1)

    def close(self) -> None:
        if self.task:
            self.task.cancel()


class Admit:
    """The job's state: one lane per assigned partition."""

    def __init__(self, app: faust.App, context: runner.Context[AdmitSettings]) -> None:
        self._app, self._context = app, context
        self._counters = context.counters
        self._sender = Sender(app, context.status)
        self._dead_letters = runner.dead_letters(app, context)
        self._sources = cluster_topics.sources(context.settings.cluster_names)
        self._lanes: dict[TP, Lane] = {}
        self._opened: list[Lane] = []
        self._tasks: set[asyncio.Task] = set()
        self._behind: set[str] = set()
        self._unusable: dict[str, str] = {}

    @property
    def _consumer(self) -> Consumer:
        return self._app.consumer

    def open(self, tp: TP, start: Start) -> int:
        """Returns the offset to read an assigned partition from.

        A lane that still exists goes on, unless another worker has committed meanwhile or its
        offset is outside the log.
        """
        lane = self._lanes.get(tp)
        if (
            lane is None
            or start.offset > lane.committed
            or not start.first <= lane.offsets.next_offset <= start.end
        ):
            if lane:
                lane.close()
            source = self._sources[tp.topic]
            lane = Lane(tp, source, Offsets(start.offset), start.offset, start.note, start.offset)
            self._lanes[tp] = lane
            self._opened.append(lane)
            if len(self._opened) == 1:
                self._do(self._start_opened())
        lane.offsets.sought()
        return lane.offsets.next_offset

    def keep(self, assigned: set[TP]) -> None:
        """Closes the lanes of partitions that another worker has now."""
        for tp in self._lanes.keys() - assigned:
            self._lanes.pop(tp).close()

    def _do(self, work: Coroutine) -> asyncio.Task:
        """Starts a task and keeps a reference, because the event loop keeps only weak ones."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("admission stopped", exc_info=error)
            self._do(self._app.crash(error))  # after a restart the job goes on from the last commit

    async def _start_opened(self) -> None:
        """Starts the lanes of an assignment.

        Lanes that write to the same partition start together, because they read the same log.
        """
        await asyncio.sleep(0)  # all partitions of the assignment are opened by then
        lanes, self._opened = self._opened, []
        by_merged: dict[TP, list[Lane]] = defaultdict(list)
        for lane in lanes:
            by_merged[lane.merged].append(lane)
        for merged, some in by_merged.items():
            self._do(self._start(merged, some))

    async def _start(self, merged: TP, lanes: list[Lane]) -> None:
        """Finds out what a predecessor admitted after its last commits, then starts the lanes."""
        end, last = await admitted.find(self._context, merged, [lane.note for lane in lanes])
        for lane in lanes:
            if self._lanes.get(lane.tp) is lane:
                lane.done = max(lane.done, last.get(lane.source.cluster, -1) + 1)
                lane.mark = end
                lane.task = self._do(self._carry(lane))

    async def take(self, event: faust.EventT) -> None:
        """Puts one message into its lane.

        Never waits for a lane, because all other messages that were fetched are behind this one.
        """
        message = event.message
        lane = self._lanes.get(message.tp)
        if lane is None:
            return  # another worker has the partition by now
        verdict = lane.offsets.judge(message.offset)
        if verdict is Verdict.SEEK:
            await self._seek(lane)
        if verdict is not Verdict.TAKE:
            return
        lane.put(Waiting(message.offset, message.timestamp, event.value or b""))
        if lane.is_full:
            self._consumer.on_buffer_full(message.tp)

    async def _seek(self, lane: Lane) -> None:
        self._counters.add("messages_missed_and_sought")
        try:
            await self._consumer.seek_wait({lane.tp: lane.offsets.next_offset})
        # A seek fails during a rebalance, for example. Otherwise the next message asks for it
        # again.
        except Exception as error:
            log.warning("%s: cannot seek %d: %r", lane.tp, lane.offsets.next_offset, error)
            lane.offsets.sought()

    async def _carry(self, lane: Lane) -> None:
        """Sends the lane's messages, one after the other.

        Begins once a commit has noted where a successor must look for them.
        """
        while admitted.marked(lane.note) is None:
            await asyncio.sleep(_COMMIT_S / 4)
        while True:
            message = await lane.next()
            if message.offset < lane.done:
                self._counters.add(f"admitted_before: {lane.source.cluster}")
            else:
                await self._admit(lane, message)
            self._context.lag.took(lane.tp, message.offset, message.timestamp)
            lane.pop()
            if not lane.is_full:
                self._consumer.on_buffer_drop(lane.tp)

    async def _admit(self, lane: Lane, message: Waiting) -> None:
        headers = admission.headers(lane.source.cluster, message.offset)
        topic, partition = lane.merged
        try:
            found = await self._sender.send(Message(topic, message.value, partition, headers))
        except TooLargeError as error:
            log.error("%s %d: %s", lane.tp, message.offset, error)
            await self._dead_letters.send(
                Origin(lane.tp.topic, lane.tp.partition, message.offset),
                "oversized",
                str(error),
                message.value,
            )
            return
        lane.mark = found.offset + 1
        self._counters.add(f"admitted_messages: {lane.source.cluster}")
        self._counters.add(f"admitted_bytes: {lane.source.cluster}", len(message.value))

    async def commit(self) -> None:
        """Commits what is acknowledged.

        For lanes without messages, also commits how far the log of all clusters has come meanwhile.
        """
        newest: dict[TP, int] = {}
        for lane in self._lanes.values():
            newest[lane.merged] = max(newest.get(lane.merged, 0), lane.mark or 0)
        wanted = {}
        for tp, lane in self._lanes.items():
            if lane.mark is None:
                continue
            if not lane.waiting:
                lane.mark = newest[lane.merged]
            note = admitted.note(lane.mark)
            if (lane.done, note) != (lane.committed, lane.note):
                wanted[tp] = (lane.done, note)
        if wanted and await self._consumer.commit_to(wanted):
            for tp, (offset, note) in wanted.items():
                if tp in self._lanes:
                    self._lanes[tp].committed, self._lanes[tp].note = offset, note

    async def watch_lag(self) -> None:
        """Logs once which clusters are behind, and once when they no longer are."""
        lags = dict.fromkeys(self._context.settings.cluster_names, 0.0)
        for tp, seconds in self._context.lag.seconds(time.time()):
            cluster = self._sources[tp.topic].cluster
            lags[cluster] = max(lags[cluster], seconds)
        for cluster, seconds in lags.items():
            self._counters.gauge(f"admission_lag_s: {cluster}", round(seconds, 3))
            if seconds > _BEHIND_S and cluster not in self._behind:
                log.warning("cluster %s: admission is %.0f s behind", cluster, seconds)
                self._behind.add(cluster)
            elif seconds < _BEHIND_S / 2 and cluster in self._behind:
                log.info("cluster %s: admission is no longer behind", cluster)
                self._behind.remove(cluster)

    async def usable(self) -> list[str]:
        """Returns the topics of the clusters that can be read.

        Topics that cannot be read are named in the log and counted.
        """
        wanted = {*self._sources, *(source.merged for source in self._sources.values())}
        found = await topics.partitions(self._context.settings, wanted)
        unusable = {}
        for topic, source in self._sources.items():
            if topic not in found:
                unusable[topic] = "does not exist, or may not be read"
            elif found[topic] != found.get(source.merged):
                unusable[topic] = (
                    f"has {found[topic]} partitions, {source.merged} has {found.get(source.merged, 0)}"
                )
        for topic, why in unusable.items():
            if self._unusable.get(topic) != why:
                log.warning("%s is not admitted: it %s", topic, why)
        self._unusable = unusable
        self._counters.gauge("topics_not_admitted", len(unusable))
        return sorted(self._sources.keys() - unusable.keys())

    async def follow_topics(self) -> None:
        """Subscribes also to topics that have appeared.

        A topic that is no longer usable stays subscribed, because it may come back.
        """
        try:
            usable = await self.usable()
        except Exception as error:  # the consumer's own status reports that the brokers are away
            log.warning("topics cannot be listed: %s: %s", type(error).__name__, error)
            return
        channels = list(self._app.topics._topics)
        known = {topic for channel in channels for topic in channel.topics}
        if set(usable) <= known:
            return
        log.info("topics admitted from now on: %s", ", ".join(sorted(set(usable) - known)))
        for channel in channels:
            channel.topics = sorted(known | set(usable))
        # This is what Faust's conductor does, without the 45 s that it waits for more topics.
        await self._consumer.subscribe(await self._app.topics._update_indices())


async def build(context: runner.Context[AdmitSettings]) -> faust.App:
    """Creates the app. Returns once there is a topic to read."""
    app = runner.app("admit", context.settings, **_OPTIONS)
    job = Admit(app, context)
    while not (usable := await job.usable()):
        context.status.failed(health.CONSUMER, f"no topic of {', '.join(context.settings.cluster_names)}")
        await asyncio.sleep(_TOPICS_S)

    async def agent(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take(event)

    app.agent(runner.topic(app, *usable, acks=False), name="admit")(agent)
    app.transport.opener = job.open
    runner.every(app, _COMMIT_S, job.commit)
    runner.every(app, _TOPICS_S, job.follow_topics)
    runner.every(app, _LAG_S, job.watch_lag)

    @app.on_partitions_assigned.connect
    async def assigned(_: faust.App, assigned: set[TP], **__: object) -> None:
        job.keep(assigned)

    return app
