"""The job `classify` while partitions are reassigned."""

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from faust.types import TP
from spillway_contracts import names
from spillway_runtime.status import Status
from spillway_streams.batches.positions import Batch
from spillway_streams.classes import rules
from spillway_streams.clients import store
from spillway_streams.ingest.class_rules import FRESH_MS
from spillway_streams.jobs import classify, runner
from spillway_streams.jobs.classify import Classify
from spillway_streams.process.config import ClassifySettings
from spillway_streams.process.counters import Counters
from traffic_log import calls, edges


class Store:
    def __init__(self) -> None:
        self.tables: list[str] = []

    async def select(self, _: str) -> list:
        return []

    async def insert(self, table: str, *_: object) -> None:
        self.tables.append(table)


@pytest.fixture
def job(tmp_path) -> Classify:
    address = {"kafka": "h:1", "health_listen": "h:2", "clickhouse_url": "clickhouse://localhost"}
    settings = ClassifySettings(**address, state_dir=tmp_path)
    app = SimpleNamespace(consumer=None, consumer_generation_id=7)
    made = Classify(app, runner.Context(settings, Status("clickhouse"), Counters(), Store()))
    made.keep({TP(names.KAFKA_TOPIC_CALLS, 0)})
    return made


def _event(generation: int = 7) -> SimpleNamespace:
    return SimpleNamespace(message=SimpleNamespace(partition=0, generation_id=generation, ack=lambda _: True))


def _takes(job: Classify, monkeypatch) -> None:
    batch = calls(np.random.default_rng(1), 60)

    async def read(*_: object) -> tuple[Batch, dict]:
        return Batch(names.KAFKA_TOPIC_CALLS, 0, 0, 1), batch

    monkeypatch.setattr(job._reader, "batch", read)


async def test_partitions_given_away_during_a_decision(job, monkeypatch):
    """The decision's thread finishes undisturbed, but its rules are for another worker to write.

    Afterwards nothing of the services is remembered.
    """
    _takes(job, monkeypatch)
    await job.take_calls(_event())
    begun, may_end, forgotten = threading.Event(), threading.Event(), []

    def decide(*_: object) -> tuple[list, list]:
        begun.set()
        may_end.wait(30)
        return [SimpleNamespace(kind="learned")], []

    job._decider = SimpleNamespace(
        decide=decide, forget=lambda gone: forgotten.append((may_end.is_set(), gone))
    )
    deciding = asyncio.create_task(job.decide())
    await asyncio.to_thread(begun.wait, 30)
    job.keep(set())
    may_end.set()
    await deciding
    await job.decide()
    assert job._context.store.tables == [] and job._memory.services == {} and job._partitions == {}
    assert all(ended for ended, gone in forgotten if gone) and any(gone for _, gone in forgotten)


async def test_rules_take_effect_a_while_after_they_are_stored_however_long_that_took(job, monkeypatch):
    """The store is unreachable for a while after the decision.

    Each attempt to insert has its own time, and a later end moves by as much.
    """
    clock = iter((1_000_000, 1_100_000))
    monkeypatch.setattr(classify, "_now_ms", lambda: next(clock))
    seen: list[list[tuple]] = []

    def execute(_: str, rows: list[tuple]) -> None:
        seen.append(rows)
        if len(seen) == 1:
            raise OSError("away")

    client = SimpleNamespace(execute=execute, disconnect=lambda: None)
    monkeypatch.setattr(store, "connect", lambda _: client)
    job._context = replace(job._context, store=store.Store("clickhouse://localhost", Status("clickhouse")))
    ends = rules.Rule(5, 5 + rules.DELAY_MS + 7000, "s", "", "", "", rules.RETIRED)
    await job._store([rules.Rule(5, 5 + rules.DELAY_MS, "s", "", "", "/other", rules.BOUNDED), ends], [])
    times = [[row[:2] for row in rows] for rows in seen]
    assert times == [
        [(now, now + rules.DELAY_MS), (now, now + rules.DELAY_MS + 7000)] for now in (1_000_000, 1_100_000)
    ]


def test_a_rule_can_be_read_before_anything_is_decided_without_it():
    """DELAY_MS covers one attempt to insert, and the time that `exclusive` uses rules for."""
    limits = store._SETTINGS
    attempt_s = (
        limits["connect_timeout"] + limits["sync_request_timeout"] + 2 * limits["send_receive_timeout"]
    )
    assert attempt_s * 1000 + FRESH_MS < rules.DELAY_MS


async def test_messages_of_partitions_that_are_not_ours_any_more_are_not_remembered(job, monkeypatch):
    """They were read before the rebalance and waited for a decision. Read again, they count."""
    _takes(job, monkeypatch)
    await job.take_calls(_event(6))
    assert job._memory.services == {} and job._context.counters["calls"] == 0
    await job.take_calls(_event())
    assert job._context.counters["calls"] == 60


async def test_a_class_is_known_since_its_first_edge_was_read(job, monkeypatch):
    """Known since the epoch, its rate would be 0, and the busiest class would be `/other`."""
    batch = edges(np.random.default_rng(1), 60)

    async def read(*_: object) -> tuple[Batch, dict]:
        return Batch(names.KAFKA_TOPIC_EDGES, 0, 0, 1), batch

    monkeypatch.setattr(job._reader, "batch", read)
    before = time.time()
    await job.take_edges(_event())
    since = {kept.since for service in job._memory.services.values() for kept in service.classes.values()}
    assert since and min(since) >= before


async def test_rows_that_nothing_can_be_made_of_are_told_of_and_hold_up_nothing(job, monkeypatch):
    """They decode but the memory cannot take them: they are dead-lettered and acknowledged."""
    _takes(job, monkeypatch)
    refused, acknowledged = [], []

    async def refuse(_: object, reason: str, error: Exception) -> None:
        refused.append((reason, str(error)))

    def fail(_: dict) -> None:
        raise OverflowError("odd")

    monkeypatch.setattr(job._reader, "refuse", refuse)
    monkeypatch.setattr(job._memory, "add_calls", fail)
    monkeypatch.setattr(classify, "acknowledge", lambda *_: acknowledged.append(True))
    await job.take_calls(_event())
    assert refused == [("unusable", "odd")] and acknowledged and job._context.counters["calls"] == 0


async def test_partitions_of_services_are_known_as_long_as_the_services(job, monkeypatch):
    """Names that occur once are not kept for ever."""
    _takes(job, monkeypatch)
    await job.take_calls(_event())
    assert set(job._partitions) == {"s0", "s1", "s2"}
    job._memory.services.clear()
    await job.decide()
    assert job._partitions == {}
