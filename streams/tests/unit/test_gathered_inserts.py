"""Rows of `exclusive` that wait for their insert, and the commits that wait for the rows."""

import asyncio
import time

import pytest
from exclusive_jobs import SPANS, STORE, event, made
from faust.types import TP
from spillway_contracts import names
from spillway_runtime import retry
from spillway_runtime.status import Status
from spillway_streams.clients.store import Store
from spillway_streams.jobs import exclusive
from spillway_streams.jobs.exclusive import Exclusive

_SHORT = {"window_s": 1, "hold_s": 1, "life_s": 1.5, "remember_s": 1.5}  # seconds of log time


class Consumer:
    """Accepts every commit, and remembers the offsets."""

    def __init__(self) -> None:
        self.committed: dict[TP, int] = {}

    def progress(self, _: TP) -> None:
        return None

    async def commit_to(self, wanted: dict[TP, tuple[int, str]]) -> bool:
        self.committed |= {tp: offset for tp, (offset, _) in wanted.items()}
        return True


class ServerStore(Store):
    """A store with a server that is away at first. Remembers the tables of its inserts."""

    def __init__(self) -> None:
        super().__init__(STORE, Status("clickhouse"))
        self.is_away, self.attempts, self.inserts = True, 0, []

    def _run(self, client, work):
        self.attempts += 1
        if self.is_away:
            raise ConnectionRefusedError
        return client, None

    async def insert_columns(self, table, batches, refused) -> None:
        await super().insert_columns(table, batches, refused)
        self.inserts.append((table, len(batches)))


class Job:
    """The job with everything around it."""

    def __init__(self, folder, **settings: float) -> None:
        self.consumer, self.store, self.sent = Consumer(), ServerStore(), []
        self._began, self._offset = time.time(), 0  # spans of the future would be refused
        self.job: Exclusive = made(folder, self.consumer, self.store, **_SHORT | settings)
        self.job._sender.once = self._send
        self.job._rules.is_fresh = lambda _: True
        self.job._rules_known.set()

    async def _send(self, message) -> None:
        self.sent.append(message.topic)

    async def traffic(self, seconds: float) -> None:
        """Takes a message of each second."""
        for _ in range(int(seconds)):
            await self.job.take(event(self._offset, self._began + self._offset))
            self._offset += 1

    async def flush(self) -> None:
        self.job._commit_at = 0.0
        await self.job.flush()


@pytest.fixture(autouse=True)
def _quick(monkeypatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)


async def _attempts(store: ServerStore, more: int) -> None:
    goal = store.attempts + more
    while store.attempts < goal:
        await asyncio.sleep(0.001)


async def _flushing(job: Job, seconds: float, attempts: int) -> asyncio.Task:
    """Takes messages, and begins a flush whose inserts have failed so often."""
    await job.traffic(seconds)
    found = asyncio.create_task(job.flush())
    await _attempts(job.store, attempts)
    return found


async def test_rows_wait_for_an_insert_and_messages_do_not(tmp_path):
    """Two flushes are one insert of each table. Nothing is committed before it."""
    job = Job(tmp_path, insert_period_s=60, span_sample_share=0)
    job.store.is_away = False
    for _ in range(2):
        job.sent.clear()
        await job.traffic(20)
        await job.flush()
        assert names.KAFKA_TOPIC_CALLS in job.sent
    assert not job.store.inserts and not job.consumer.committed
    assert job.job._outputs.rows > 30
    job.job._outputs._due_at = 0.0
    await job.flush()
    assert job.store.inserts == [("calls", 2)] and job.job._outputs.rows == 0
    assert 30 < job.consumer.committed[SPANS] < 40


async def test_nothing_is_committed_while_an_insert_fails(tmp_path):
    """What waited is committed as soon as the server has answered."""
    job = Job(tmp_path, insert_period_s=0)
    flushing = await _flushing(job, 20, 3)
    assert names.KAFKA_TOPIC_CALLS in job.sent  # Kafka does not wait for ClickHouse
    assert not flushing.done() and not job.consumer.committed
    job.store.is_away = False
    await flushing
    assert 10 < job.consumer.committed[SPANS] < 20


async def test_a_partition_that_is_revoked_before_the_insert_is_not_committed(tmp_path):
    """Another worker has it, and repeats what this one has not committed. The rows do no harm."""
    job = Job(tmp_path, insert_period_s=0)
    flushing = await _flushing(job, 20, 1)
    job.job.keep(set())
    job.store.is_away = False
    await flushing
    await job.flush()
    assert job.store.inserts and not job.consumer.committed


async def test_a_partition_that_comes_back_is_committed_for_what_is_read_anew(tmp_path):
    """Rows of the time before are no part of it: the new shard has closed nothing yet."""
    job = Job(tmp_path, insert_period_s=60)
    job.store.is_away = False
    await job.traffic(20)
    await job.flush()
    job.job.keep(set())
    job.job.open(SPANS, exclusive.Start(0, 0, 10, ""))
    job.job._outputs._due_at = 0.0
    await job.flush()
    assert job.store.inserts and not job.consumer.committed


async def test_many_rows_do_not_wait(tmp_path):
    """They are inserted at an eighth of the rows that may be unstored."""
    job = Job(tmp_path, insert_period_s=60, max_unstored_rows=1000, span_sample_share=0)
    job.store.is_away = False
    await job.traffic(100)
    await job.flush()
    assert not job.store.inserts
    await job.traffic(40)
    await job.flush()
    assert job.store.inserts == [("calls", 2)] and job.consumer.committed[SPANS] > 100


async def test_reading_pauses_for_rows_that_cannot_be_stored(tmp_path):
    """While ClickHouse is away, rows that wait count as much as spans that are still open."""
    job = Job(tmp_path, insert_period_s=0, max_unstored_rows=1000, span_sample_share=0)
    flushing = await _flushing(job, 600, 1)
    assert job.job._outputs.rows > 500
    await job.traffic(400)
    assert job.job._room.is_set()
    await job.traffic(1)
    assert not job.job._room.is_set()
    job.store.is_away = False
    await flushing
    assert job.job._room.is_set()
