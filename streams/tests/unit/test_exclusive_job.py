"""The job `exclusive` while something that it needs is unavailable."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from aiokafka.errors import IllegalStateError
from exclusive_jobs import SPANS, event, made
from faust.types import TP
from spillway_contracts import names
from spillway_streams.batches import columns, native_batch
from spillway_streams.clients.transport import Start
from spillway_streams.ingest import admission
from spillway_streams.jobs.exclusive import Exclusive


class Rules:
    """A table that answers when `may_answer` is set, and counts the queries."""

    def __init__(self) -> None:
        self.asked, self.may_answer, self.was_asked = 0, asyncio.Event(), asyncio.Event()

    def is_fresh(self, _: int) -> bool:
        return False

    async def read(self) -> list:
        self.asked += 1
        self.was_asked.set()
        await self.may_answer.wait()
        return []


@pytest.fixture
async def job(tmp_path) -> Exclusive:
    job = made(tmp_path, SimpleNamespace(progress=lambda _: None))
    job._rules = Rules()
    return job


async def test_messages_and_arrivals_do_not_wait_for_rules(job):
    """ClickHouse is unavailable when rules are to be read.

    Messages are still decoded, and arrivals are sent. When it answers, what is due closes, whatever
    the difference between this host's clock and the broker's.
    """
    sent = []

    async def once(message) -> None:
        sent.append(message)

    job._sender.once = once
    now = time.time()
    await job.take(event(0, now))
    closing = asyncio.create_task(job._close(SPANS, job._shards[SPANS]))
    await job._rules.was_asked.wait()
    await job.take(event(1, now))
    await job.send_arrivals()
    await job._arrivals.settled()
    assert [message.topic for message in sent] == [names.KAFKA_TOPIC_ARRIVALS] and not closing.done()
    job._rules.may_answer.set()
    await closing
    await job.take(event(2, now + 60))
    closed = await job._close(SPANS, job._shards[SPANS])
    assert closed.calls.rows == 2 and job._rules.asked <= 4


async def test_arrivals_of_all_shards_are_one_batch(job):
    """Shards send to the same partitions. Separately, they would displace each other's batches."""
    sizes, other = [], TP(SPANS.topic, 1)
    job.open(other, Start(0, 0, 10, ""))
    job._arrivals.send = lambda messages: sizes.append(len(messages))
    for tp in (SPANS, other):
        found = event(0, time.time())
        found.message.tp, found.message.partition = tp, tp.partition
        await job.take(found)
    await job.send_arrivals()
    assert sizes == [2]


async def test_rules_of_a_newer_version_leave_the_others_in_force(job):
    """Rules of an unknown kind are counted. Shards opened later get the others."""
    rules = [(0, "shop", "GET", "/a", "/b", "merged"), (0, "shop", "GET", "/c", "/d", "dreamt")]

    async def read() -> list:
        return rules

    job._rules.read = read
    await job.poll_rules()
    job.open(TP(SPANS.topic, 1), Start(0, 0, 10, ""))
    assert job._maker.rules == rules[:1]
    assert job._context.counters.gauges()["class_rules_of_unknown_kind"] == 1


async def test_what_is_missing_is_sought_again_when_a_seek_fails(job):
    """As in a rebalance: the next message beyond the gap seeks again, and then is taken."""
    sought = []

    async def seek_wait(offsets: dict) -> None:
        sought.append(offsets)
        if len(sought) == 1:
            raise IllegalStateError("not assigned")

    job._app.consumer.seek_wait = seek_wait
    for offset in (5, 6, 6):
        await job.take(event(offset, time.time()))
    assert sought == [{SPANS: 0}] * 2 and job._shards[SPANS].offsets.next_offset == 7


def _clusters(closed) -> set[str]:
    rows = native_batch.read(columns.CALLS, closed.calls)
    return set(columns.texts(rows["cluster"]).to_pylist())


async def test_the_cluster_is_that_of_the_header_whatever_spans_claim(job):
    """Spans in west's topic that claim c1 belong to west, and are counted.

    Spans that nobody admitted are dead-lettered. If they are to be accepted, they belong to the
    cluster that they name.
    """
    dead_lettered, now = [], time.time()

    async def send(origin, kind, reason, payload) -> None:
        dead_lettered.append((origin.offset, kind, reason))

    job._dead_letters.send = send
    job._rules.may_answer.set()
    await job.take(event(0, now, "west"))
    await job.take(event(1, now, None))
    assert job._counters["claims_overridden: west"] == 1
    assert [(offset, kind) for offset, kind, _ in dead_lettered] == [(1, "unadmitted")]
    assert "SPILLWAY_STREAMS_ACCEPT_UNADMITTED is off" in dead_lettered[0][2]
    job._gate = admission.Gate(True, job._counters)
    await job.take(event(2, now, None))
    assert job._counters["unadmitted_messages"] == 1 and len(dead_lettered) == 1
    await job.take(event(3, now + 60))
    closed = await job._close(SPANS, job._shards[SPANS])
    assert _clusters(closed) == {"west", "c1"} and closed.calls.rows == 2
