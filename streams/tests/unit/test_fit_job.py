"""The job `curves` during a fit: all else continues, and no change is forgotten."""

import asyncio
import threading
import time
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from accuracy import simulated
from accuracy.simulated import Pod
from faust.types import TP
from spillway_contracts import names
from spillway_runtime.status import Status
from spillway_streams.batches.parts import Parts
from spillway_streams.boards import boards
from spillway_streams.jobs import curves as job_curves
from spillway_streams.jobs import runner
from spillway_streams.jobs.curves import Curves
from spillway_streams.load.load import Sum
from spillway_streams.model.modelling import BUCKETS, CAPACITIES, CURVES
from spillway_streams.process.config import CurvesSettings
from spillway_streams.process.counters import Counters
from traffic_log import T0, calls

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)


class Store:
    """Records rows by table. Nothing was stored before."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple]] = defaultdict(list)

    async def select(self, *_: object) -> list:
        return []

    async def insert_columns(self, *_: object) -> None:
        pass

    async def insert(self, table: str, _: tuple[str, ...], rows: list[tuple], *__: object) -> None:
        self.rows[table] += rows


class Redis:
    """Boards that only record when they were written."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    async def put(self, written: dict, *_: object) -> None:
        self._events.append(f"board of {sum(map(len, written.values()))} classes")

    async def placement(self, clusters: list[str]) -> dict[str, None]:
        return dict.fromkeys(clusters)

    async def reach(self) -> None:
        pass


@pytest.fixture
async def job(tmp_path) -> Curves:
    """A job with the state of one partition, empty."""
    address = {
        "kafka": "h:1",
        "health_listen": "h:2",
        "clickhouse_url": "clickhouse://localhost",
        "redis_url": "redis://localhost",
    }
    settings = CurvesSettings(**address, state_dir=tmp_path, min_samples=5)
    made = Curves(SimpleNamespace(), runner.Context(settings, Status("redis"), Counters(), Store()))
    made.assigned({TP(names.KAFKA_TOPIC_CALLS, 0)})
    while not made.states.ready:
        await asyncio.sleep(0)
    return made


async def test_a_board_is_written_while_a_fit_runs(job, monkeypatch):
    """Calls that arrive after a fit began are on a board before it ends, but not in the fit."""
    events: list[str] = []
    begun, may_end = threading.Event(), threading.Event()
    state = job.states.ready[0]
    state.load.add(calls(np.random.default_rng(1), 50))
    fit_service, seen = state.modeller.fit_service, []

    def slow(recorded, *arguments):
        events.append("fit begins")
        begun.set()
        may_end.wait(30)
        seen.append(max(len(at) for by_class in recorded.load.values() for at, _ in by_class.values()))
        events.append("fit ends")
        return fit_service(recorded, *arguments)

    monkeypatch.setattr(state.modeller, "fit_service", slow)
    monkeypatch.setattr(job._live, "_redis", Redis(events))
    fitting = asyncio.create_task(job.fit())
    await asyncio.to_thread(begun.wait, 30)
    later = calls(np.random.default_rng(2), 50, T0 + 1000)
    state.load.add(later)
    state.hot.add(boards.arrivals_of(later), T0 + 2000.0)
    job._live._has_new_data = True
    await job.board()
    may_end.set()
    await fitting
    classes = len({(key.cluster, key.class_id) for key in state.load.series})
    assert events[:3] == ["fit begins", f"board of {classes} classes", "fit ends"]
    assert seen[0] == 4, "the copy of the first service has the seconds from before"


async def test_buckets_hold_every_second_however_store_and_fit_alternate(job):
    """Seconds stored between two fits are in the buckets after the next fit.

    This includes the last second of a minute, and seconds from before a capacity was known.
    """
    load, cpu = simulated.tables(simulated.observe(Pod(1, [10.0]), LADDER, np.random.default_rng(1)))
    [(key, series)] = load.series.items()
    at, sums = series.all()
    state = job.states.ready[0]
    state.cpu = cpu
    for first in range(0, len(at), 16):
        rows = slice(first, first + 16)
        state.load.add_parts(Parts(at[rows], np.zeros_like(at[rows]), [key], sums[rows]))
        await job.store()
        if first % 64 == 0:
            await job.fit()
    await job.fit()
    newest = {}
    for row in job._context.store.rows["buckets"]:
        found = dict(zip(BUCKETS, row, strict=True))
        newest[found["window_start"], found["bucket"]] = found["samples"]
    counted = dict.fromkeys({second // 60 * 60 for second in at.tolist()}, 0)
    for (minute, _), samples in newest.items():
        counted[minute] += samples
    sent = dict.fromkeys(counted, 0)
    for second, samples in zip(at.tolist(), sums[:, Sum.SAMPLES].tolist(), strict=True):
        sent[second // 60 * 60] += samples
    assert counted == sent


async def test_a_service_without_news_is_fitted_again_after_half_a_minute_only(job, monkeypatch):
    """A shift ends then as well, because no samples support it."""
    now, fits = [100.0], []
    monkeypatch.setattr(job_curves, "time", SimpleNamespace(time=time.time, monotonic=lambda: now[0]))
    state = job.states.ready[0]
    fit_service = state.modeller.fit_service
    monkeypatch.setattr(state.modeller, "fit_service", lambda *a: fits.append(now[0]) or fit_service(*a))
    random, end = np.random.default_rng(1), 1_700_000_000 + len(LADDER)
    calls, points = simulated.observe(Pod(1, [10.0]), LADDER, random)
    state.load.add(calls)
    state.cpu.add(points)
    await job.fit()
    calls, points = simulated.observe(Pod(1, [20.0]), [0.4] * 60, random, start=end)
    state.load.add(calls)
    state.cpu.add(points)
    for _ in range(20):
        now[0] += 5
        await job.fit()
    assert fits == [100.0, 105.0, 135.0, 165.0, 195.0]
    [curve] = state.modeller._curves.values()
    reasons = [row[CURVES.index("reason")] for row in job._context.store.rows["curves"]]
    assert any("shifted by +" in reason for reason in reasons)
    assert curve.b_ms == curve.base_b_ms and "the shift is undone" in curve.reason


async def test_odd_numbers_of_one_service_leave_the_others_their_curves(job, monkeypatch):
    """The seconds of the failed service are marked as changed again."""
    state = job.states.ready[0]
    state.load.add(calls(np.random.default_rng(1), 200))
    fit_service = state.modeller.fit_service

    def odd(recorded, *arguments):
        if recorded.name == "s1":
            raise np.linalg.LinAlgError("did not converge")
        return fit_service(recorded, *arguments)

    monkeypatch.setattr(state.modeller, "fit_service", odd)
    await job.fit()
    assert {row[2] for row in job._context.store.rows["curves"]} == {"s0", "s2"}
    assert job._context.counters["fits_failed"] == 1
    assert {key.service for key in state.load.take_dirty()} >= {"s1"}


@pytest.mark.parametrize("with_cpu", [True, False])
async def test_the_job_stores_a_capacity_that_was_cut_within_60_seconds(job, with_cpu):
    """Calls are added as they end, with a fit every five seconds.

    A pod of 100 req/s can do a third of it from second 400 on. The stored capacity is below 45 (60
    without CPU use) before second 460.
    """
    load = 0.6 * (0.65 + 0.35 * np.sin(np.arange(470) / 40))
    cut = simulated.Cut(Pod(2, [20.0]), load, 400, 3.0, np.random.default_rng(1))
    state, noticed, last = job.states.ready[0], None, 0
    for end in [395, *range(400, 461, 5)]:
        called, points = cut.seen(last, end)
        state.load.add(called)
        state.cpu.add(points if with_cpu else [])
        last = end
        await job.fit()
        row = dict(zip(CAPACITIES, job._context.store.rows["capacities"][-1], strict=True))
        if end <= 400:
            assert row["capacity_rps"] > 70
        elif row["capacity_rps"] < (45 if with_cpu else 60):
            noticed = noticed or end
    assert noticed and noticed <= 460
    assert abs(row["changed_at"] - cut.start - 400) <= 30
