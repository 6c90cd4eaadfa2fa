"""Capacities and weights, on simulated queues whose true values are known."""

from collections import defaultdict

import numpy as np
import pytest
from accuracy import simulated
from accuracy.simulated import Pod
from spillway_streams.capacity import backlog, capacity, saturation
from spillway_streams.curves import weights
from spillway_streams.load.cpu import CpuTable, Point
from spillway_streams.load.load import Sum
from spillway_streams.model.modelling import CAPACITIES, Modeller, Options

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)


def _fitted(pod: Pod, *observed: tuple, with_cpu: bool = True) -> tuple[list[tuple], list[tuple]]:
    return Modeller(Options()).fit(*simulated.tables(*observed, with_cpu=with_cpu), 0)


def _seen(pod: Pod, seed: int, **options) -> tuple:
    return simulated.observe(pod, LADDER, np.random.default_rng(seed), **options)


def test_capacity_from_cpu_is_the_load_at_100_percent():
    """A line over all seconds gives the load at 100 %.

    Idle CPU is not attributed to requests. Saturated seconds are left out. If the loads are too
    similar, CPU is taken as proportional to load. Without CPU readings there is no capacity.
    """
    random = np.random.default_rng(3)
    load = np.repeat(np.linspace(20, 300, 15), 10)
    use = np.minimum(0.05 + load / 250 * 0.95 + random.normal(0, 0.01, len(load)), 1.0)
    served = np.minimum(load, 250)
    found = capacity.from_cpu(served, use)
    assert found.rps == pytest.approx(250, rel=0.03) and "line" in found.reason
    flat = capacity.from_cpu(np.full(30, 50.0), np.full(30, 0.25))
    assert flat.rps == pytest.approx(200) and "similar" in flat.reason
    full = capacity.from_cpu(np.full(30, 80.0), np.full(30, 1.0))
    assert full.rps == pytest.approx(80)
    assert capacity.from_cpu(served[:0], use[:0]) is None


def test_cpu_that_is_nearly_always_full_tells_what_was_served():
    """The two seconds below saturation are too few for a line."""
    use = np.full(600, 0.99)
    use[:2] = 0.96
    assert capacity.from_cpu(np.full(600, 80.0), use).rps == pytest.approx(80 / 0.99)


@pytest.mark.parametrize("seed", range(5))
def test_cpu_that_does_not_follow_the_load_tells_no_capacity(seed):
    """CPU use of 30 +/- 2 % at 50 to 100 requests per second: a line would reach 100 % anywhere."""
    random = np.random.default_rng(seed)
    assert capacity.from_cpu(random.uniform(50, 100, 600), 0.3 + random.normal(0, 0.02, 600)) is None


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5])
def test_a_quiet_service_has_a_capacity_of_its_own(rate):
    """A request of 100 ms every two to ten seconds: within a factor of 1.5 of 10 requests/s."""
    pod = Pod(1, [100.0])
    seen = simulated.observe(pod, [rate / 10] * 3000, np.random.default_rng(1))
    _, [row] = _fitted(pod, seen)
    assert 10 / 1.5 < row[4] < 15


def _kubelet(points: list[Point], interval: int, phase: int, late: int) -> list[Point]:
    """Returns the CPU points that a kubelet reports, from points of every second.

    Each pod is measured every `interval` seconds, `phase` seconds after the pod before it. The
    newest `late` seconds have not arrived yet.
    """
    by_pod = defaultdict(list)
    for point in points:
        by_pod[point.pod].append(point)
    end, kept = max(point.at for point in points) - late, []
    for i, of_pod in enumerate(by_pod.values()):
        for last in range(interval - 1 + i * phase, len(of_pod), interval):
            mean = np.mean([point.utilisation for point in of_pod[last + 1 - interval : last + 1]])
            kept.append(of_pod[last]._replace(utilisation=float(mean)))
    return [point for point in kept if point.at <= end]


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize(("interval", "phase", "late"), [(1, 0, 4), (10, 0, 0), (10, 3, 0), (10, 3, 15)])
def test_pods_are_counted_between_their_cpu_readings(stamped, interval, phase, late):
    """Three pods, measured every ten seconds, at the same time, one after the other, or late.

    The capacity is that of three pods, the curve that of one queue.
    """
    pod = Pod(1, [10.0])
    calls, points = simulated.observe(pod, LADDER, np.random.default_rng(1), pods=[3] * len(LADDER))
    if not stamped:
        calls |= {"in_flight": 0 * calls["in_flight"]}
    [curve], [row] = _fitted(pod, (calls, _kubelet(points, interval, phase, late)))
    assert row[4] == pytest.approx(300, rel=0.05) and "3 pods" in row[6]
    assert curve[4] == pytest.approx(10, abs=3 * curve[6]) and curve[13] != "prior"


def test_a_pod_is_gone_when_its_readings_end():
    """Readings every ten seconds. One of two pods goes after a minute, another comes after two."""
    at = {"a": range(5, 300, 10), "b": range(8, 60, 10), "c": range(121, 300, 10)}
    table = CpuTable(1000)
    table.add(Point(second, "c", "s", pod, 0.5) for pod, seconds in at.items() for second in seconds)
    second, _, pods = table.series("s", "c")
    assert set(pods[(second > 8) & (second < 60)]) == {2}
    assert set(pods[(second > 70) & (second < 121)]) == {1} and set(pods[second >= 121]) == {2}


def test_a_deployment_s_cpu_does_not_bend_the_line():
    """40 % more CPU in a tenth of the seconds moves the capacity by less than 5 %."""
    random = np.random.default_rng(4)
    load = np.repeat(np.linspace(20, 160, 15), 20)
    use = load / 250 + random.normal(0, 0.01, len(load))
    use[random.random(len(load)) < 0.1] += 0.3
    assert capacity.from_cpu(load, use).rps == pytest.approx(250, rel=0.05)


@pytest.mark.parametrize("sampled", [1.0, 0.1])
@pytest.mark.parametrize("pod", [Pod(1, [10.0], idle=0.05), Pod(4, [40.0], constant_ms=3)])
def test_capacity_with_cpu_is_within_5_percent(pod, sampled):
    """This also holds for services of which only a tenth of the spans is kept."""
    for seed in range(3):
        _, [row] = _fitted(pod, _seen(pod, seed, sampled=sampled))
        assert row[4] == pytest.approx(pod.saturation, rel=0.05) and row[5] == "cpu"


def test_a_service_that_is_scaled_out_keeps_its_curve_and_doubles_its_capacity():
    """One pod, then two pods with the same load each: the capacity row is that of two pods.

    a and b are those of a queue of one worker. The capacity of the whole service would have halved
    its utilisation.
    """
    pod = Pod(1, [10.0], constant_ms=2.0)
    pods = np.where(np.arange(len(LADDER)) % 160 < 80, 1, 2)
    for with_cpu in (True, False):
        [curve], [row] = _fitted(pod, _seen(pod, 5, pods=pods), with_cpu=with_cpu)
        assert row[4] == pytest.approx(200, rel=0.05 if with_cpu else 0.25) and "2 pods" in row[6]
        assert curve[4] == pytest.approx(10, abs=3 * curve[6])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_capacity_without_cpu_is_within_its_own_error(workers):
    """From latency alone, at up to 80 % load.

    The mean over 12 queues is within 20 %. At least 9 of 12 are within two of their own standard
    errors.
    """
    pod, found, errors = Pod(workers, [10.0 * workers], constant_ms=2.0), [], []
    for seed in range(12):
        load, _ = simulated.tables(_seen(pod, seed), with_cpu=False)
        [series] = load.series.values()
        at, sums = series.all()
        rate = sums[:, Sum.ARRIVALS]
        smooth = np.convolve(rate, np.ones(11) / 11, mode="same")[5:-5]
        estimate = saturation.from_latency(
            at[5:-5], smooth, smooth, 0 * smooth,
            (sums[:, Sum.EXCLUSIVE] / np.maximum(sums[:, Sum.OK], 1))[5:-5, None],
            sums[5:-5, Sum.SAMPLES][:, None],
        )  # fmt: skip
        found.append(estimate.rps / pod.saturation)
        errors.append(estimate.se / pod.saturation)
    assert np.mean(found) == pytest.approx(1, abs=0.2)
    assert np.sum(np.abs(np.array(found) - 1) < 2 * np.array(errors)) >= 9


def test_a_range_too_narrow_tells_nothing_and_a_low_one_says_so():
    """Loads within a tenth of each other give no capacity, loads without a queue a weak one."""
    pod = Pod(8, [80.0])
    random = np.random.default_rng(6)
    narrow = simulated.tables(simulated.observe(pod, [0.5] * 60, random), with_cpu=False)
    rate = np.full(60, 50.0)
    assert saturation.from_latency(np.arange(60), rate, rate, 0 * rate, rate[:, None], rate[:, None]) is None
    assert narrow[1].series(simulated.SERVICE, "here")[0].size == 0
    low = np.repeat([0.05, 0.1, 0.15, 0.2], 30)
    [row] = Modeller(Options()).fit(
        *simulated.tables(simulated.observe(pod, low, random), with_cpu=False), 0
    )[1]
    assert "weak" in row[6]


def test_what_is_served_while_requests_are_refused_is_the_capacity():
    """The offered load is up to 1.6 times what can be served; the rest is rejected.

    Neither the offered load nor a multiple of it is taken for the capacity. Errors that occur at
    any load do not count as rejections.
    """
    offered = np.repeat(np.linspace(20, 160, 8), 20)
    served, failed = np.minimum(offered, 100), np.maximum(1 - 100 / offered, 0)
    at, n = np.arange(len(offered)), np.full((len(offered), 1), 50.0)
    u = np.minimum(offered / 100, 0.97)
    latency = (5 + 5 / (1 - u))[:, None]
    found = saturation.from_latency(at, offered, served, failed, latency, n)
    assert found.rps == pytest.approx(100, rel=0.02) and "refused" in found.reason
    half = offered[:80]
    errors = np.where(at[:80] % 2, 0.1, 0.1)
    other = saturation.from_latency(at[:80], half, 0.9 * half, errors, latency[:80], n[:80])
    assert other is None or "refused" not in other.reason


def test_weights_of_classes_that_moved_apart_come_from_cpu():
    """One class costs three times the CPU but only twice the time: found within 5 %."""
    random = np.random.default_rng(5)
    rates = random.uniform(0, 100, (120, 2))
    cpu = 0.02 + rates @ np.array([0.001, 0.003]) + random.normal(0, 0.005, 120)
    assert weights.from_cpu(np.array([1.0, 2.0]), rates, cpu, 5) == pytest.approx([1, 3], rel=0.05)


def test_weights_of_classes_that_move_alike_keep_the_ratio_of_their_own_times():
    """Rates in lock-step determine only the sum; the prior divides it, and replaces missing CPU."""
    rates = np.outer(np.linspace(10, 100, 120), [1.0, 0.5])
    cpu = rates @ np.array([0.001, 0.004])
    prior = np.array([1.0, 2.0])
    assert weights.from_cpu(prior, rates, cpu, 5) == pytest.approx([1, 2], rel=0.25)
    assert weights.from_cpu(prior, rates[:0], cpu[:0], 5).tolist() == [1, 2]


def test_own_times_are_taken_without_what_all_classes_wait():
    """2 and 6 ms plus the wait of a queue that is up to two thirds busy: a ratio of 3 within 15 %.

    The ratio of the means is below 2.2. A class without samples has weight 1.
    """
    rates = np.stack([np.arange(1.0, 31), np.arange(1.0, 31), np.zeros(30)], axis=1)
    u = rates.sum(axis=1) / 90
    wait = 4 * u / (1 - u)
    exclusive = np.stack([2 + wait, 6 + wait, np.zeros(30)], axis=1)
    assert exclusive[:, 1].mean() / exclusive[:, 0].mean() < 2.2
    assert weights.from_exclusive(rates, exclusive, rates) == pytest.approx([1, 3, 1], rel=0.15)


@pytest.mark.parametrize("with_cpu", [True, False])
def test_two_classes_of_one_queue(with_cpu):
    """10 and 30 ms in one M/G/1 queue.

    Pollaczek-Khinchine: a is the remaining service time that a request finds, the same for both
    classes. b is what remains of each class's own time, below 0 for the short one. Means of six
    ladders, with CPU use (in brackets: from latency alone):
    - the weight is within 10 % (30 %),
    - the total load that saturates is within 5 % (25 %),
    - the latency without load is within 2 ms (3 ms) of the own time of each class,
    - a of each class is within 15 % (with CPU use only).
    """
    pod = Pod(1, [10.0, 30.0], [0.65, 0.35])
    runs = [_fitted(pod, _seen(pod, seed), with_cpu=with_cpu) for seed in range(6)]
    weight = [curves[1][8] for curves, _ in runs]
    assert np.mean(weight) == pytest.approx(3, rel=0.1 if with_cpu else 0.3)
    total = [row[4] / pod.capacity([1, w]) for (_, [row]), w in zip(runs, weight, strict=True)]
    assert np.mean(total) == pytest.approx(1, rel=0.05 if with_cpu else 0.25)
    for k, service_ms in enumerate(pod.service_ms):
        without_load = np.mean([curves[k][4] + curves[k][5] for curves, _ in runs])
        assert without_load == pytest.approx(service_ms, abs=2 if with_cpu else 3)
        if with_cpu:
            rest = np.dot(pod.shares, np.square(pod.service_ms)) / np.dot(pod.shares, pod.service_ms)
            assert np.mean([curves[k][4] for curves, _ in runs]) == pytest.approx(rest, rel=0.15)


@pytest.mark.parametrize(
    ("with_cpu", "stamped", "pods"), [(True, True, 3), (True, False, 3), (False, True, 3), (False, False, 0)]
)
def test_a_capacity_says_with_how_many_pods_it_was_measured(with_cpu, stamped, pods):
    """CPU reports or stamps count the pods. With neither, their number is unknown, not one."""
    calls, points = simulated.observe(
        Pod(1, [10.0]), LADDER, np.random.default_rng(1), pods=[3] * len(LADDER)
    )
    if not stamped:
        calls |= {"in_flight": 0 * calls["in_flight"]}
    _, [row] = _fitted(Pod(1, [10.0]), (calls, points), with_cpu=with_cpu)
    assert dict(zip(CAPACITIES, row, strict=True))["pods"] == pods


def test_pods_that_report_no_cpu_use_are_counted_by_their_stamps():
    """Two of three pods report CPU: one pod's capacity must not be half of what all three do."""
    calls, points = simulated.observe(
        Pod(1, [10.0]), LADDER, np.random.default_rng(1), pods=[3] * len(LADDER)
    )
    _, [row] = _fitted(Pod(1, [10.0]), (calls, [point for point in points if point.pod != "pod-2"]))
    assert dict(zip(CAPACITIES, row, strict=True))["pods"] == 3
    assert row[4] == pytest.approx(300, rel=0.05)


def test_a_cluster_that_tells_no_capacity_is_assumed_to_have_that_of_its_own_pods():
    """Four pods were measured elsewhere. The one pod here, at constant load, gets a quarter."""
    pod, random = Pod(1, [10.0]), np.random.default_rng(2)
    there = simulated.observe(pod, LADDER, random, cluster="there", pods=[4] * len(LADDER))
    here, _ = simulated.observe(pod, [0.3] * 60, random)
    _, rows = _fitted(pod, there, (here, []))
    first, last = (dict(zip(CAPACITIES, row, strict=True)) for row in rows)
    assert (first["cluster"], first["evidence"], first["pods"]) == ("here", "assumed", 1)
    assert (last["cluster"], last["pods"]) == ("there", 4)
    assert first["capacity_rps"] == pytest.approx(last["capacity_rps"] / 4)


def _waiting(workers: int, seed: int, utilisation: np.ndarray) -> dict:
    """Returns the row of a service that waits on I/O: 95 req/s, at which its CPU is 19 % busy."""
    pod = Pod(workers, [1000 * workers / 95])
    calls, points = simulated.observe(pod, utilisation, np.random.default_rng(seed))
    idle = [point._replace(utilisation=0.19 * point.utilisation) for point in points]
    _, [row] = _fitted(pod, (calls, idle))
    return dict(zip(CAPACITIES, row, strict=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [1, 4, 16])
def test_a_service_that_waits_on_io_saturates_where_its_queue_grows_not_where_its_cpu_would(workers, seed):
    """At up to 125 % load: within 10 % of 95. CPU alone gives 490 to 520; the row has both."""
    row = _waiting(workers, seed, np.concatenate([LADDER, np.full(30, 1.25), np.full(60, 0.3)]))
    assert row["capacity_rps"] == pytest.approx(95, rel=0.1)
    assert row["evidence"] == "queue" and row["limit_rps"] == row["capacity_rps"]
    assert row["cpu_rps"] > 450 and row["disagreement"] > 4 and "cpu alone would give" in row["reason"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [1, 4])
def test_a_service_that_waits_on_io_is_known_by_its_latency_before_it_saturates(workers, seed):
    """At up to 80 % load: within 30 %, the accuracy of latency without any CPU use."""
    row = _waiting(workers, seed, LADDER)
    assert row["capacity_rps"] == pytest.approx(95, rel=0.3)
    assert row["evidence"] == "latency" and row["disagreement"] > 3


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_rough_evidence_does_not_lower_the_capacity_of_a_service_that_needs_cpu(workers):
    """Forty ladders, every other one with a burst of overload.

    CPU stays decisive, and no disagreement is reported.
    """
    pod = Pod(workers, [10.0 * workers], idle=0.03)
    for seed in range(40):
        burst = np.full(30, 1.2) if seed % 2 else np.full(30, 0.5)
        seen = simulated.observe(pod, np.concatenate([LADDER, burst]), np.random.default_rng(seed))
        _, [row] = _fitted(pod, seen)
        found = dict(zip(CAPACITIES, row, strict=True))
        assert (found["evidence"], found["disagreement"]) == ("cpu", 1), (seed, found)
        assert found["capacity_rps"] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("busiest", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_latency_that_does_not_rise_excludes_no_capacity(workers, busiest):
    """A quiet pod of 100 req/s, 12 times: CPU is decisive, though latency alone gives far less."""
    pod = Pod(workers, [10.0 * workers], idle=0.03)
    for seed in range(12):
        seen = simulated.observe(pod, LADDER / LADDER.max() * busiest, np.random.default_rng(seed))
        _, [row] = _fitted(pod, seen)
        found = dict(zip(CAPACITIES, row, strict=True))
        assert (found["evidence"], found["disagreement"]) == ("cpu", 1), (seed, found)


def test_a_queue_that_no_longer_grows_limits_nothing():
    """A queue grew because the machine stalled. Later more is served without a queue."""
    at, arrived = np.arange(200), np.full(200, 50.0)
    latency = np.full(200, 20.0)
    latency[50:80] = 20 + 500 * np.arange(30)
    assert backlog.from_backlog(at[:80], arrived[:80], latency[:80]).rps == pytest.approx(50 / 1.5, rel=0.02)
    assert backlog.from_backlog(at, arrived, latency) is None
