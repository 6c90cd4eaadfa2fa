"""Calls that no queue explains move neither a curve nor a capacity, and real queues are left alone."""

import numpy as np
import pytest
from accuracy import queues, simulated
from accuracy.simulated import Cut, Pod
from spillway_streams import outliers
from spillway_streams.counters import Counters
from spillway_streams.cpu import CpuTable
from spillway_streams.load import LoadTable, Sum
from spillway_streams.load_rates import Seconds
from spillway_streams.modelling import CAPACITIES, CURVES, Modeller, Options

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
    """Calls of the same class and cluster that began at these seconds, as a tracer without stamps sends them."""
    calls = simulated._columns(at, np.full(len(at), ms), np.zeros(len(at), int), 0 * at, "here", START, 1.0)
    return calls | {"in_flight": np.zeros(len(at), np.int64)}


def _half(curve: dict) -> float:
    """Latency at half load, ms."""
    return curve["a_ms"] / 0.5 + curve["b_ms"]


@pytest.mark.parametrize("with_cpu", [True, False])
@pytest.mark.parametrize("began", [[350.5, 351.5, 352.5], [-7200.0, -3600.0, 349.0]])
def test_calls_of_an_hour_among_thousands_move_no_curve(with_cpu, began):
    """Three of some 17 000, among the others and hours before them: latency at half load stays within 3 %."""
    tables = _honest(with_cpu)
    curve, capacity = _model(*_honest(with_cpu))
    tables[0].add(_forged(np.array(began), 3_600_000.0))
    lied, limit = _model(*tables)
    assert _half(lied) == pytest.approx(_half(curve), rel=0.03)
    assert limit["capacity_rps"] == pytest.approx(capacity["capacity_rps"], rel=0.03)
    assert "3 s left out" in lied["reason"] and "3 s left out" in limit["reason"]


@pytest.mark.parametrize("with_cpu", [True, False])
@pytest.mark.parametrize(("per_second", "ms", "seconds"), [(400, 0.1, 12), (200, 1.0, 4), (100, 1.0, 12)])
def test_forged_calls_that_are_too_fast_to_be_true_raise_no_capacity(with_cpu, per_second, ms, seconds):
    """Hundreds a second for some seconds, beside 25 real ones: the capacity stays within 5 %, the curve within 10 %."""
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
    """With so many seconds of history: the capacity stays within 10 %."""
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
    """A load that swings up to 90 %, jumps to 150 % for half a minute, and requests that become three times as long: of
    some 900 seconds at most three."""
    random = np.random.default_rng(seed)
    load = np.concatenate([0.6 + 0.3 * np.sin(np.arange(600) / 60), np.full(30, 1.5), np.full(250, 0.3)])
    cut = Cut(Pod(workers, [10.0 * workers]), load, 700, 3.0, random)
    assert _left_out(cut.seen(0, 870)[0]) <= 3


def test_a_pause_of_half_a_second_is_a_queue():
    """All requests wait for its end, and what arrives later leaves later: nothing is left out."""
    random = np.random.default_rng(5)
    at = queues.arrivals(np.full(400, 50.0), random)
    service = random.exponential(0.01, len(at))
    service[np.searchsorted(at, np.arange(20, 400, 40))] += 0.5
    ms = (queues.waits(at, service, 1) + service) * 1000
    calls = simulated._columns(at, ms, np.zeros(len(at), int), 0 * at, "here", START, 1.0)
    assert _left_out(calls) <= 1


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("rate", [1, 20])
def test_heavy_tails_are_no_outliers(sigma, rate):
    """Requests that wait for nobody and whose times are lognormal keep their mean within 2 %."""
    random = np.random.default_rng(7)
    at = np.sort(random.uniform(0, 3000, 3000 * rate))
    ms = 200 * np.exp(random.normal(0, sigma, len(at)))
    load = LoadTable(100_000, Counters())
    load.add(simulated._columns(at, ms, np.zeros(len(at), int), 0 * at, "here", START, 1.0))
    seconds = _seconds(load)
    cleaned = outliers.without(seconds, outliers.outliers(seconds))
    kept = cleaned.sums[:, 0, Sum.SAMPLES] > 0
    mean = cleaned.sums[kept, 0, Sum.EXCLUSIVE].sum() / cleaned.sums[kept, 0, Sum.OK].sum()
    assert mean == pytest.approx(ms.mean(), rel=0.02)


def test_a_state_that_lasts_is_believed():
    """Forged for five minutes, or a service that really has become faster and busier: who can tell them apart?"""
    tables = _honest(True)
    tables[0].add(_forged(300 + np.arange(300 * 200) / 200, 1.0))
    seconds = _seconds(tables[0])
    assert outliers.outliers(seconds)[400:600].sum() == 0


def test_a_second_that_is_left_out_keeps_its_load():
    """Arrivals become those of the seconds around it, so that no rate has a hole."""
    tables = _honest(False)
    before = _seconds(tables[0])
    tables[0].add(_forged(np.full(5, 350.5), 3_600_000.0))
    seconds = _seconds(tables[0])
    cleaned = outliers.without(seconds, outliers.outliers(seconds))
    row = np.flatnonzero(cleaned.at == START + 350)[0]
    around = before.sums[row - 10 : row + 11, 0, Sum.ARRIVALS].mean()
    assert cleaned.sums[row, 0, Sum.ARRIVALS] == pytest.approx(around, rel=0.2)
    assert cleaned.sums[row, 0, Sum.SAMPLES] == 0


def _seconds(load: LoadTable) -> Seconds:
    [series] = load.series.values()
    at, sums = series.all()
    return Seconds(at, sums[:, None, :])


def _left_out(calls: dict) -> int:
    load = LoadTable(100_000, Counters())
    load.add(calls)
    return int(outliers.outliers(_seconds(load)).sum())
