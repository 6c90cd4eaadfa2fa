"""Capacity, weights, curves and the two-stage update, on data whose truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams import capacity, columns, curves, fit, weights
from spillway_streams.counters import Counters
from spillway_streams.cpu import CpuTable, Point
from spillway_streams.curves import Buckets
from spillway_streams.load import LoadTable
from spillway_streams.modelling import Modeller, Novelty, Options

T0 = 1_700_000_000


@given(a=st.floats(0.1, 50), b=st.floats(0, 100), capacity_=st.floats(20, 5000))
@settings(max_examples=30, deadline=None)
def test_curve_and_capacity_are_recovered(a, b, capacity_):
    """Exact points give exact a and b; with the capacity unknown it comes out too."""
    u = np.linspace(0.05, 0.95, 10)
    latency, n = a / (1 - u) + b, np.full(10, 100.0)
    found = fit.fit(u, latency, 0.1 * latency, n)
    for at in (0.1, 0.5, 0.9):
        assert found(at) == pytest.approx(a / (1 - at) + b, rel=0.01)
    together = fit.fit_capacity(u * capacity_, latency, 0.01 * latency, n * 100)
    if a > b / 10:  # a flat curve does not tell where it ends
        assert together.capacity == pytest.approx(capacity_, rel=0.05)


def test_a_bad_bucket_does_not_bend_the_curve():
    """One bucket ten times off moves the others' prediction by less than 10 %."""
    u = np.linspace(0.05, 0.95, 10)
    latency = 2 / (1 - u) + 5
    latency[4] *= 10
    found = fit.fit(u, latency, 0.1 * latency, np.full(10, 1000.0))
    good = np.delete(u, 4)
    assert found(good) == pytest.approx(2 / (1 - good) + 5, rel=0.10)


def test_capacity_from_cpu_is_the_load_at_100_percent():
    """A line over all seconds: idle CPU is not charged to requests; saturated seconds are left out;
    loads too alike are taken as proportional; no CPU at all gives nothing."""
    random = np.random.default_rng(3)
    load = np.repeat(np.linspace(20, 300, 15), 10)
    at = np.arange(len(load))
    use = np.minimum(0.05 + load / 250 * 0.95 + random.normal(0, 0.01, len(load)), 1.0)
    served = np.minimum(load, 250)
    found = capacity.from_cpu(at, served, use)
    assert found.rps == pytest.approx(250, rel=0.03) and "line" in found.reason
    flat = capacity.from_cpu(at[:30], np.full(30, 50.0), np.full(30, 0.25))
    assert flat.rps == pytest.approx(200) and "alike" in flat.reason
    full = capacity.from_cpu(at[:30], np.full(30, 80.0), np.full(30, 1.0))
    assert full.rps == pytest.approx(80)
    assert capacity.from_cpu(at[:0], served[:0], use[:0]) is None


def test_rates_are_counted_over_gaps_and_edges():
    """Empty seconds count as empty; recording that stops for long is no zero load."""
    at = np.array([0, 1, 2, 4, 5, 100, 101])
    counts = np.array([10.0, 10, 10, 10, 10, 40, 40])
    rate = capacity.moving_rate(at, counts, width=3)
    assert rate.tolist() == pytest.approx([10, 10, 20 / 3, 20 / 3, 10, 40, 40])


def test_weights_from_cpu_need_classes_that_moved_apart():
    """A class that costs three times as much is found; rates in lock-step give nothing."""
    random = np.random.default_rng(5)
    rates = random.uniform(0, 100, (60, 2))
    cpu = 0.02 + rates @ np.array([0.001, 0.003])
    assert weights.from_cpu(rates, cpu) == pytest.approx([1, 3], rel=1e-3)
    assert weights.from_cpu(np.repeat(rates[:, :1], 2, axis=1), cpu) is None
    assert weights.from_cpu(rates[:10], cpu[:10]) is None


def test_weights_without_cpu_are_exclusive_times_at_low_load():
    """Ratio of the means in the quiet third; a class without samples weighs 1."""
    rates = np.stack([np.arange(1.0, 31), np.arange(1.0, 31), np.zeros(30)], axis=1)
    exclusive = np.stack([np.full(30, 2.0), np.full(30, 6.0), np.zeros(30)], axis=1)
    exclusive[20:] *= 50
    assert weights.from_exclusive(rates, exclusive, rates) == pytest.approx([1, 3, 0.5], rel=1e-6)


def _buckets(filled: list[int], a: float, b: float, n: int = 100) -> Buckets:
    u = (np.arange(10) + 0.5) / 10
    samples = np.array([n if i in filled else 0 for i in range(10)], dtype=float)
    latency = np.where(samples > 0, a / (1 - u) + b, 0)
    return Buckets(np.where(samples > 0, u, 0), latency, latency * 0.1, samples)


NOTHING = _buckets([], 1, 1)


def test_the_phases_of_a_curve():
    """prior until three buckets are filled, a first fit then, more buckets refit, a shift moves b
    only and from the unshifted curve, and every bucket fresh refits and forgets the past."""
    curve = curves.update(None, _buckets([1], 4, 0), NOTHING, 10, 30, 100.0)
    assert (curve.phase, curve.b_ms) == ("prior", 0.0) and curve.a_ms == pytest.approx(4)
    curve = curves.update(curve, _buckets([1, 3, 5], 2, 5), NOTHING, 20, 30, 100.0)
    assert curve.phase == "retrain" and (curve.a_ms, curve.b_ms) == (
        pytest.approx(2, rel=0.05),
        pytest.approx(5, rel=0.05),
    )
    shifted = curves.update(curve, _buckets([1, 3, 5], 2, 5), _buckets([3], 2, 9), 30, 30, 100.0)
    assert (
        shifted.phase == "shift" and shifted.b_ms == pytest.approx(9, rel=0.05) and shifted.a_ms == curve.a_ms
    )
    again = curves.update(shifted, _buckets([1, 3, 5], 2, 5), _buckets([3], 2, 9), 35, 30, 100.0)
    assert again.b_ms == pytest.approx(shifted.b_ms)
    wider = curves.update(again, _buckets([1, 3, 5, 8], 3, 6), NOTHING, 40, 30, 100.0)
    assert wider.phase == "retrain" and len(wider.filled) == 4
    full = curves.update(wider, _buckets(list(range(10)), 3, 6), NOTHING, 50, 30, 100.0)
    assert full.phase == "retrain" and full.fresh_from == 50
    assert curves.update(full, NOTHING, NOTHING, 60, 30, 100.0) == full


def test_a_curve_is_fitted_anew_when_the_capacity_has_moved():
    """Utilisation is a share of capacity: a shape that was fitted against another one is not kept."""
    first = curves.update(None, _buckets([1, 3, 5], 2, 5), NOTHING, 20, 30, 100.0)
    assert curves.update(first, _buckets([1, 2, 4], 3, 1), NOTHING, 30, 30, 109.0).a_ms == first.a_ms
    moved = curves.update(first, _buckets([1, 2, 4], 3, 1), NOTHING, 30, 30, 150.0)
    assert moved.phase == "retrain" and "capacity moved from 100.0 to 150.0" in moved.reason
    assert moved.a_ms == pytest.approx(3, rel=0.05)


def test_overload_is_no_steady_state():
    """Seconds at 98 % and above are not learnt from."""
    found = curves.collect(np.array([0.5, 0.985]), np.array([10.0, 900]), np.zeros(2), np.array([40.0, 40]))
    assert found.filled(1) == {5}


def _calls(cluster: str, rates: np.ndarray, cap: float, seed: int, weight: float = 1.0) -> columns.Columns:
    random = np.random.default_rng(seed)
    rows = []
    for second, rate in enumerate(rates):
        for i in range(int(rate / weight)):
            own = int(1000 * (random.exponential(2 / (1 - rate / cap)) + 5))
            failed = i % 50 == 0
            rows.append((
                (T0 + second) * 1_000_000 + i, "t", f"{second}-{i}", cluster, "s", "s GET /x", "", "", own,
                1 if failed else own, 2, float(rate), 1, 1, 500 if failed else 200, failed, weight,
            ))  # fmt: skip
    return columns.from_rows(columns.CALLS, rows)


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_two_clusters_give_one_curve_and_a_capacity_each(weight):
    """Different sizes, one shape: pooled over clusters by utilisation; failed calls' times are not
    used; sampled counts are corrected."""
    table, cpu = LoadTable(3600, Counters()), CpuTable(3600)
    for cluster, cap, seed in (("c1", 200.0, 1), ("c2", 400.0, 2)):
        rates = np.repeat(np.linspace(0.1, 0.93, 12) * cap, 10)
        table.add(_calls(cluster, rates, cap, seed, weight))
        cpu.add(Point(T0 + i, cluster, "s", "p", float(rate / cap)) for i, rate in enumerate(rates))
    [curve], found = Modeller(Options()).fit(table, cpu, 0)
    # A fiftieth of the calls failed, so what is served is that much less than what arrives.
    assert [row[4] for row in found] == [pytest.approx(200, rel=0.06), pytest.approx(400, rel=0.06)]
    for u in (0.2, 0.5, 0.9):
        assert curve[4] / (1 - u) + curve[5] == pytest.approx(2 / (1 - u) + 5, rel=0.15)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_order_and_batching_of_calls_change_no_row(seed):
    """The table per second is a sum: any order, any split, the same rows."""
    calls = _calls("c1", np.linspace(20, 60, 20), 100, 3)
    random = np.random.default_rng(seed)
    order = random.permutation(columns.length(calls))
    cuts = np.sort(random.integers(0, len(order), 3))
    one, many = LoadTable(3600, Counters()), LoadTable(3600, Counters())
    one.add(calls)
    for part in np.split(order, cuts):
        many.add(columns.take(calls, part))
    rows, again = (sorted(zip(*table.take_dirty()[0], strict=True)) for table in (one, many))
    assert [row[:4] for row in rows] == [row[:4] for row in again]
    assert np.allclose([row[4:] for row in rows], [row[4:] for row in again])


def test_memory_is_bounded_and_what_is_older_is_counted():
    """Only the newest seconds are kept; a call from before them is not silently added to nothing."""
    counters = Counters()
    table = LoadTable(50, counters)
    table.add(_calls("c1", np.full(80, 10.0), 100, 4))
    [series] = table.series.values()
    assert len(series.all()[0]) <= 55
    table.add(_calls("c1", np.full(1, 10.0), 100, 4))
    assert counters["calls_older_than_memory"] == 10


def test_a_restart_restores_the_table():
    """Rows as ClickHouse gives them back lead to the same load and nearly the same curve."""
    table, restored = LoadTable(3600, Counters()), LoadTable(3600, Counters())
    table.add(_calls("c1", np.repeat(np.linspace(10, 90, 12), 10), 100, 6))
    restored.restore(zip(*table.take_dirty()[0], strict=True))
    cpu = CpuTable(3600)
    [before], [cap] = Modeller(Options()).fit(table, cpu, 0)
    [after], [cap_after] = Modeller(Options()).fit(restored, cpu, 0)
    assert cap_after[4] == pytest.approx(cap[4], rel=0.1)
    for u in (0.2, 0.5, 0.8):
        assert after[4] / (1 - u) + after[5] == pytest.approx(before[4] / (1 - u) + before[5], rel=0.05)


def test_only_news_are_stored():
    """A row is kept when its values moved by more than a hundredth, or after half a minute."""
    novelty = Novelty(identity=(1,), values=(2,))
    assert novelty.keep([(0, "x", 10.0)]) and not novelty.keep([(1000, "x", 10.05)])
    assert novelty.keep([(2000, "x", 11.0)]) and novelty.keep([(40_000, "x", 11.0)])
