"""Forged calls move neither curve nor capacity. Real queues, tails and bursts are left alone."""

import numpy as np
import pytest
from accuracy import queues, simulated
from accuracy.simulated import Cut, Pod
from spillway_streams.capacity import outliers
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import LoadTable, Sum
from spillway_streams.load.load_rates import Seconds
from spillway_streams.model import service
from spillway_streams.model.modelling import CAPACITIES, CURVES, Modeller, Options
from spillway_streams.process.counters import Counters

POD = Pod(1, [20.0])  # saturates at 50 req/s
SECONDS = 700
SWINGS = 0.5 + 0.3 * np.sin(np.arange(SECONDS) / 60)
START = 1_700_000_000


def _model(load: LoadTable, cpu: CpuTable) -> tuple[dict, dict]:
    [curve], [capacity] = Modeller(Options()).fit(load, cpu, 0)
    return dict(zip(CURVES, curve, strict=True)), dict(zip(CAPACITIES, capacity, strict=True))


def _honest(with_cpu: bool, seed: int = 1) -> tuple[LoadTable, CpuTable]:
    seen = simulated.observe(POD, SWINGS, np.random.default_rng(seed))
    return simulated.tables(seen, with_cpu=with_cpu)


def _forged(at: np.ndarray, ms: float) -> dict:
    """Calls without stamps, of the same class and cluster, that began at these seconds."""
    return _calls(at, np.full(len(at), ms)) | {"in_flight": np.zeros(len(at), np.int64)}


def _half(curve: dict) -> float:
    """Latency at half load, ms."""
    return curve["a_ms"] / 0.5 + curve["b_ms"]


@pytest.mark.parametrize("with_cpu", [True, False])
@pytest.mark.parametrize("began", [[350.5, 351.5, 352.5], [-7200.0, -3600.0, 349.0]])
def test_calls_of_an_hour_among_thousands_move_no_curve(with_cpu, began):
    """Three of some 17 000, among the others and hours before: latency at half load within 3 %."""
    tables = _honest(with_cpu)
    curve, capacity = _model(*_honest(with_cpu))
    tables[0].add(_forged(np.array(began), 3_600_000.0))
    lied, limit = _model(*tables)
    assert _half(lied) == pytest.approx(_half(curve), rel=0.03)
    assert limit["capacity_rps"] == pytest.approx(capacity["capacity_rps"], rel=0.03)
    recent = sum(second > 0 for second in began)  # a capacity covers the last 600 s
    assert "; 3 s left out" in lied["reason"] and f"; {recent} s left out" in limit["reason"]


@pytest.mark.parametrize("with_cpu", [True, False])
@pytest.mark.parametrize(("per_second", "ms", "seconds"), [(400, 0.1, 12), (200, 1.0, 4), (100, 1.0, 12)])
def test_forged_calls_that_are_too_fast_to_be_true_raise_no_capacity(with_cpu, per_second, ms, seconds):
    """Hundreds a second for some seconds, beside 25 real ones: the capacity stays within 5 %.

    The curve stays within 10 %.
    """
    tables = _honest(with_cpu)
    curve, capacity = _model(*_honest(with_cpu))
    at = 600 + np.arange(per_second * seconds) / per_second
    tables[0].add(_forged(at, ms))
    lied, limit = _model(*tables)
    assert limit["capacity_rps"] == pytest.approx(capacity["capacity_rps"], rel=0.05)
    assert _half(lied) == pytest.approx(_half(curve), rel=0.1)
    assert f"{seconds} s left out" in limit["reason"]


@pytest.mark.parametrize("seconds", [90, 150])
def test_forged_calls_raise_no_capacity_of_a_cluster_that_is_new(seconds):
    """With so many seconds of history, the capacity stays within 10 %."""
    load = np.concatenate([np.repeat([0.2, 0.45, 0.65, 0.85, 0.95], 5), np.full(seconds - 25, 0.8)])

    def observed() -> tuple[LoadTable, CpuTable]:
        return simulated.tables(simulated.observe(POD, load, np.random.default_rng(2)))

    tables = observed()
    tables[0].add(_forged(seconds - 14 + np.arange(400 * 12) / 400, 0.1))
    honest, lied = (_model(*seen)[1]["capacity_rps"] for seen in (observed(), tables))
    assert lied == pytest.approx(honest, rel=0.1)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_no_second_of_a_real_queue_is_left_out_but_by_chance(workers, seed):
    """The load varies up to 90 %, jumps to 150 % for 30 s, and requests become three times as long.

    Of some 900 seconds at most three are left out.
    """
    random = np.random.default_rng(seed)
    load = np.concatenate([0.6 + 0.3 * np.sin(np.arange(600) / 60), np.full(30, 1.5), np.full(250, 0.3)])
    cut = Cut(Pod(workers, [10.0 * workers]), load, 700, 3.0, random)
    assert _left_out(cut.seen(0, 870)[0]) <= 3


def test_a_pause_of_half_a_second_is_a_queue():
    """All requests wait for its end, and later arrivals leave later: hardly any is left out."""
    random = np.random.default_rng(5)
    at = queues.arrivals(np.full(400, 50.0), random)
    service = random.exponential(0.01, len(at))
    service[np.searchsorted(at, np.arange(20, 400, 40))] += 0.5
    ms = (queues.waits(at, service, 1) + service) * 1000
    assert _left_out(_calls(at, ms)) <= 1


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("rate", [1, 20])
def test_heavy_tails_are_no_outliers(sigma, rate):
    """Requests that do not wait, with lognormal times: the mean stays within 2 %."""
    random = np.random.default_rng(7)
    at = np.sort(random.uniform(0, 3000, 3000 * rate))
    ms = 200 * np.exp(random.normal(0, sigma, len(at)))
    assert _mean(_calls(at, ms)) == pytest.approx(ms.mean(), rel=0.02)


@pytest.mark.parametrize("length", [60, 300])
def test_a_state_that_lasts_is_no_outlier(length):
    """Forged for so long, or a service that became faster and busier: the numbers are the same."""
    tables = _honest(True)
    tables[0].add(_forged(300 + np.arange(length * 200) / 200, 1.0))
    assert outliers.find(_seconds(tables[0])).all.sum() == 0


@pytest.mark.parametrize(
    ("rate", "share", "long_ms"), [(0.5, 0.1, 3_000), (5, 0.02, 15_000), (5, 0.01, 60_000)]
)
def test_long_calls_that_recur_are_no_outliers(rate, share, long_ms):
    """Time-outs and exports of calls that do not wait for each other: the mean stays within 3 %."""
    random = np.random.default_rng(1)
    at = np.sort(random.uniform(0, 3600, int(3600 * rate)))
    ms = np.where(random.random(len(at)) < share, long_ms, 5 * np.exp(random.normal(0, 0.2, len(at))))
    assert _mean(_calls(at, ms)) == pytest.approx(ms.mean(), rel=0.03)


def test_a_class_with_a_call_per_minute_keeps_its_misses_and_its_slowdown():
    """8 % misses of 100 ms, and calls that take five times as long in the second half."""
    random = np.random.default_rng(2)
    at = 30.0 + 60 * np.arange(300)
    misses = np.where(random.random(300) < 0.08, 100.0, 5.0)
    slower = np.where(at > 9_000, 25.0, 5.0) * np.exp(random.normal(0, 0.2, 300))
    for ms in (misses, slower):
        assert _left_out(_calls(at, ms)) == 0


def test_bursts_that_recur_on_a_quiet_service_are_no_outliers():
    """60 calls a second for 20 s every two minutes, a third faster because of warm caches.

    None is left out.
    """
    random = np.random.default_rng(3)
    rate = np.where(np.arange(3600) % 120 < 20, 60.0, 1.0)
    at = queues.arrivals(rate, random)
    ms = 100 * np.exp(random.normal(0, 0.1, len(at))) * np.where(rate[at.astype(int)] > 1, 0.65, 1.0)
    assert _left_out(_calls(at, ms)) == 0


def test_a_pod_that_pauses_among_four_keeps_the_mean():
    """8 s every two minutes, with one of ten spans kept: the mean stays within 10 %.

    Departures of one pod overtake those of another. With so few spans a mean sometimes shows it.
    """
    random = np.random.default_rng(4)
    parts = []
    for pod in range(4):
        at = queues.arrivals(np.full(3600, 10.0), random)
        service = random.exponential(0.01, len(at))
        if pod == 0:
            service[np.searchsorted(at, np.arange(60, 3500, 120))] += 8
        parts.append((at, (queues.waits(at, service, 1) + service) * 1000))
    at, ms = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = np.flatnonzero(random.random(len(at)) < 0.1)
    kept = kept[np.argsort(at[kept])]
    assert _mean(_calls(at[kept], ms[kept], 10.0)) == pytest.approx(ms[kept].mean(), rel=0.1)


@pytest.mark.parametrize(
    ("ms", "per_second", "seconds"), [(3_600_000.0, 5, 1), (3_600_000.0, 1, 40), (0.1, 400, 28)]
)
def test_a_second_that_is_left_out_keeps_its_load(ms, per_second, seconds):
    """Rates have no gap, however long the outliers last. Forged calls add less than 10 %."""
    tables = _honest(False)
    before = _seconds(tables[0])
    tables[0].add(_forged(350.5 + np.arange(per_second * seconds) / per_second, ms))
    recorded = _seconds(tables[0])
    found = outliers.find(recorded)
    cleaned = outliers.without(recorded, found)
    rows = found.all[:, 0]
    assert seconds - 1 <= rows.sum() <= seconds + 1
    arrivals = [series.sums[rows, 0, Sum.ARRIVALS] for series in (before, cleaned)]
    assert arrivals[1].min() > 0
    assert arrivals[1].sum() - (per_second * seconds if ms > 1 else 0) == pytest.approx(
        arrivals[0].sum(), rel=0.25
    )
    latency = cleaned.sums[rows, 0, Sum.EXCLUSIVE].sum() / cleaned.sums[rows, 0, Sum.OK].sum()
    assert 5 < latency < 200


def test_buckets_are_those_of_the_last_fit_whatever_was_an_outlier_before():
    """Calls are forged for 90 s. At first they look like an outlier, then like a lasting state.

    In the end the stored buckets are those of a fit over everything.
    """
    stored: dict[tuple, tuple] = {}
    load, cpu = _honest(True)
    modeller, calls = Modeller(Options()), _forged(600 + np.arange(90 * 200) / 200, 1.0)
    load.take_dirty()
    for end in range(605, 700, 5):
        now = (calls["started_at"] >= (START + end - 5) * 10**6) & (
            calls["started_at"] < (START + end) * 10**6
        )
        load.add({name: column[now] for name, column in calls.items()})
        stored |= _buckets(modeller, load, cpu, load.take_dirty())
    [series] = load.series.values()
    everything = {key: set(series.all()[0].tolist()) for key in load.series}
    whole = _buckets(modeller, load, cpu, everything)
    assert {row: whole[row] for row in stored} == stored
    assert {row for row in whole if row[0] >= START + 600} <= set(stored)


def _buckets(modeller: Modeller, load: LoadTable, cpu: CpuTable, dirty: dict) -> dict[tuple, tuple]:
    """Returns (window_start, ..., bucket) -> sums, from a fit."""
    [(name, keys)] = service.gather(load).items()
    fitted = modeller.fit_service(service.record(name, keys, load, cpu), dirty, 0)
    return {row[:5]: row[5:] for row in fitted.buckets}


def _calls(at: np.ndarray, ms: np.ndarray, weight: float = 1.0) -> dict:
    return simulated._columns(at, ms, np.zeros(len(at), int), 0 * at, "here", START, weight)


def _mean(calls: dict) -> float:
    """Mean latency (ms) of the samples that are not outliers."""
    load = LoadTable(100_000, Counters())
    load.add(calls)
    seconds = _seconds(load)
    kept = ~outliers.find(seconds).all[:, 0]
    return float(seconds.sums[kept, 0, Sum.EXCLUSIVE].sum() / seconds.sums[kept, 0, Sum.OK].sum())


def _seconds(load: LoadTable) -> Seconds:
    [series] = load.series.values()
    at, sums = series.all()
    return Seconds(at, sums[:, None, :])


def _left_out(calls: dict) -> int:
    load = LoadTable(100_000, Counters())
    load.add(calls)
    return int(outliers.find(_seconds(load)).all.sum())
