"""The phases of a curve, and the models of whole services."""

import numpy as np
import pytest
from accuracy import queues, simulated
from accuracy.simulated import Pod
from spillway_streams.batches.novelty import Novelty
from spillway_streams.batches.parts import Parts
from spillway_streams.curves import curves
from spillway_streams.curves.buckets import BLOCK_S, N_BUCKETS, Buckets, collect
from spillway_streams.curves.curves import LONG_AGO, Curve, Evidence
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import Key, LoadTable, Sum
from spillway_streams.model import service
from spillway_streams.model.modelling import BUCKETS, Modeller, Options, bucket_rows
from spillway_streams.process.counters import Counters

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)
ALL = list(range(N_BUCKETS))


def _buckets(filled: list[int], a: float, b: float, n: int = 100) -> Buckets:
    """Buckets on a curve, in four blocks of time."""
    u = np.tile((np.arange(N_BUCKETS) + 0.5) / 10, 4)
    samples = np.where(np.isin((u * 10).astype(int), filled), n / 4, 0.0)
    latency = a / (1 - u) + b
    # Blocks differ by a tenth, like those of a queue.
    wobble = 1 + 0.1 * np.repeat([-1, 1, -1, 1], N_BUCKETS)
    return collect(np.arange(40) // 10, u, latency * wobble, 0.5 * latency, samples)


NOTHING = _buckets([], 1, 1)


def _update(
    curve: Curve | None, now: int, rps: float = 100.0, samples: int | None = None, **evidence: Buckets
) -> Curve | None:
    """heard: samples of the last minute, if there were more than the recent buckets hold."""
    found = {"kept": NOTHING, "before": NOTHING, "fresh": NOTHING, "recent": NOTHING} | evidence
    if samples is None:
        samples = int(found["recent"].samples.sum())
    return curves.update(curve, Evidence(**found, samples_including_overload=samples), now, 30, rps)


def _first(filled: list[int] = [1, 3, 5]) -> Curve:  # noqa: B006
    return _update(None, 20, kept=_buckets(filled, 2, 5))


def test_prior_first_fit_and_shift():
    """The M/M/1 identity applies until three buckets are filled, then a fit.

    A shift moves only b, by the mean prediction error of the recent buckets. It starts from the
    unshifted curve.
    """
    curve = _update(None, 10, kept=_buckets([1], 4, 0))
    assert (curve.phase, curve.b_ms) == ("prior", 0.0) and curve.a_ms == pytest.approx(4, rel=0.01)
    curve = _update(curve, 20, kept=_buckets([1, 3, 5], 2, 5))
    assert curve.phase == "retrain" and "first fit" in curve.reason
    assert (curve.a_ms, curve.b_ms) == (pytest.approx(2, rel=0.05), pytest.approx(5, rel=0.05))
    kept = _buckets([1, 3, 5], 2, 5)
    shifted = _update(curve, 30, kept=kept, recent=_buckets([3], 2, 9))
    assert shifted.phase == "shift" and shifted.b_ms == pytest.approx(9, rel=0.05)
    assert shifted.a_ms == curve.a_ms
    again = _update(shifted, 35, kept=kept, recent=_buckets([3], 2, 9))
    assert again.b_ms == pytest.approx(shifted.b_ms)
    fallen = _update(again, 45, kept=kept, recent=_buckets([3], 0.1, -9))
    assert fallen.b_ms == -fallen.a_ms, "latency without load is never below 0"


def test_a_shift_ends_with_the_samples_that_told_it():
    """Without samples in the last minute, the curve is as it was fitted.

    With a few samples, but too few to fill a bucket, nothing changes.
    """
    kept = _buckets([1, 3, 5], 2, 5)
    shifted = _update(_first(), 30, kept=kept, recent=_buckets([3], 2, 9))
    assert _update(shifted, 40, kept=kept, recent=_buckets([3], 2, 9, 20)) == shifted
    # Overload fills no bucket, but it is not silence.
    assert _update(shifted, 40, kept=kept, samples=500) == shifted
    back = _update(shifted, 40, kept=kept)
    assert back.b_ms == back.base_b_ms and "the shift is undone" in back.reason
    assert _update(back, 45, kept=kept) == back


def _shifts(pod: Pod, u: float, slower: float, seed: int, ends: np.ndarray) -> np.ndarray:
    """Returns the shifts of the true curve of a queue, relative to its latency, and the errors.

    Before the change the curve covers the ladder and ten minutes at u. Then the service takes
    `slower` times as long. `ends`: seconds after the change.
    """
    random = np.random.default_rng(seed)
    known = np.concatenate([LADDER, np.full(600, u)])
    now_slow = Pod(pod.workers, [slower * ms for ms in pod.service_ms])
    start = 1_700_000_000 + len(known)
    after = np.full(int(ends.max()) + 1, u * slower)
    observed = simulated.observe(pod, known, random), simulated.observe(now_slow, after, random, start=start)
    load, cpu = simulated.tables(*observed)
    [(name, keys)] = service.gather(load).items()
    model = service.model(service.record(name, keys, load, cpu), 100_000)
    seen = model.samples(simulated.class_name(0), "here")
    at_u = np.where(seen.at < start, seen.u, u)  # utilisation by the capacity before the change

    def within(first: int, end: int) -> Buckets:
        rows = (seen.at >= first) & (seen.at < end)
        columns = (seen.at // BLOCK_S, at_u, seen.exclusive_ms, seen.sd_ms, seen.samples)
        return collect(*(column[rows] for column in columns))

    a = pod.service_ms[0] / pod.workers
    level = pod.service_ms[0] * (1 + queues.erlang_wait(pod.workers, u))
    before, found = within(0, start), []
    curve = Curve(
        a, level - a / (1 - u), 1, 1, 0.1, 0.9, 1000, 1, "retrain", "", level - a / (1 - u), frozenset(ALL), LONG_AGO,
        start, 100.0,
    )  # fmt: skip
    for end in (start + ends).tolist():
        recent = within(end - 60, end)
        shifted = _update(curve, end, kept=before, before=before, recent=recent)
        error = (recent.exclusive_ms @ recent.samples) / recent.samples.sum() - level
        found.append((abs(shifted.b_ms - curve.b_ms) / level, abs(error) / level))
    return np.array(found)


PODS = [Pod(workers, [ms * workers]) for workers in (1, 2, 4) for ms in (10.0, 40.0)]


def test_chance_shifts_no_curve():
    """Steady queues of 1, 2 and 4 workers that are 20 to 85 % busy.

    A minute's mean is more than 5 % off in over 40 % of the cases, the curve in one of 50.
    """
    ends = np.arange(60, 900, 20)
    found = np.concatenate([_shifts(pod, u, 1.0, 1, ends) for pod in PODS for u in (0.2, 0.5, 0.7, 0.85)])
    assert np.mean(found[:, 1] > 0.05) > 0.4
    assert np.mean(found[:, 0] > 0.05) < 0.02


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: f"{pod.workers}x{pod.saturation:.0f}")
def test_a_change_is_followed_within_the_minute(pod):
    """Service takes half as long again: the shift is 0.9 of the rise, from 5 requests/s on."""
    found = np.concatenate(
        [_shifts(pod, u, 1.5, seed, np.array([60])) for u in (0.2, 0.4) for seed in range(4)]
    )
    assert np.mean(found[:, 0] / found[:, 1]) > 0.9


def test_what_was_forgotten_stays_so_after_a_restart():
    """The window of a stored curve limits the samples, also of the first curve after a restart."""
    slow, fast = Pod(1, [30.0]), Pod(1, [10.0])
    changed = 1_700_000_000 + len(LADDER)
    observed = (
        simulated.observe(slow, LADDER, np.random.default_rng(1)),
        simulated.observe(fast, LADDER, np.random.default_rng(2), start=changed),
    )
    tables, class_id = simulated.tables(*observed, with_cpu=False), simulated.class_name(0)
    restored = Modeller(Options())
    restored.restore([(simulated.SERVICE, class_id, f"{changed * 1000}-{(changed + 320) * 1000}")])
    [again], _ = restored.fit(*tables, 0)
    [mixed], _ = Modeller(Options()).fit(*tables, 0)
    assert again[1].startswith(f"{changed * 1000}-") and mixed[1].startswith("1700000000000-")
    assert again[11] < 0.8 * mixed[11] and again[4] + again[5] < mixed[4] + mixed[5]


def test_more_buckets_are_fitted_at_once():
    wider = _update(_first(), 40, kept=_buckets([1, 3, 5, 8], 3, 6))
    assert wider.phase == "retrain" and "1 more buckets" in wider.reason and len(wider.filled) == 4


def test_every_bucket_fresh_and_changed_forgets_the_old():
    """All ten buckets have fresh data that contradict the old: only fresh data are fitted."""
    old = _first(ALL)
    kept = _buckets(ALL, 3, 10)
    found = _update(old, 50, kept=kept, before=_buckets(ALL, 2, 5), fresh=_buckets(ALL, 4, 15))
    assert "the old data is dropped" in found.reason and found.fresh_from == old.retrained_at == 20
    assert (found.a_ms, found.b_ms) == (pytest.approx(4, rel=0.05), pytest.approx(15, rel=0.05))
    assert found.retrained_at == 50


def test_every_bucket_fresh_and_the_same_keeps_the_old():
    """Data that agree within chance are fitted together: more data, smaller error."""
    kept = _buckets(ALL, 2, 5, 200)
    found = _update(_first(ALL), 50, kept=kept, before=_buckets(ALL, 2, 5), fresh=_buckets(ALL, 2, 5))
    assert "agree" in found.reason and found.fresh_from == LONG_AGO and found.samples == 2000


def test_a_service_that_stays_in_the_middle_is_refitted_too():
    """The service reaches only three of ten buckets, and is slower than before.

    The buckets count as fresh with half as many samples as the fit rests on. With fewer samples,
    the curve is only shifted.
    """
    old = _first()
    before, slow = _buckets([1, 3, 5], 2, 5), _buckets([1, 3, 5], 4, 10)
    found = _update(old, 60, kept=before, before=before, fresh=slow)
    assert found.phase == "retrain" and "buckets in use" in found.reason
    assert found.a_ms == pytest.approx(4, rel=0.05)
    few = _buckets([1, 3, 5], 4, 10, 40)
    assert _update(old, 60, kept=before, before=before, fresh=few, recent=few).phase == "shift"


def test_a_curve_is_fitted_anew_when_the_capacity_has_moved():
    """Utilisation is a share of capacity: a shape fitted against another one is not kept."""
    first = _first()
    kept = _buckets([1, 2, 4], 3, 1)
    assert _update(first, 30, 109.0, kept=kept).a_ms == first.a_ms
    moved = _update(first, 30, 150.0, kept=kept)
    assert moved.retrained_at == first.retrained_at, "samples that were fresh stay fresh"
    assert moved.phase == "retrain" and "moved from 100.0 to 150.0" in moved.reason
    assert moved.a_ms == pytest.approx(3, rel=0.05)


def test_a_bucket_s_mean_stretch_is_not_the_stretch_of_its_mean():
    """Between 90 and 97 % busy 1 / (1 - u) triples. A curve's mean latency has the mean stretch."""
    u = np.linspace(0.9, 0.97, 50)
    found = collect(np.zeros(50, int), u, 2 / (1 - u) + 5, 0 * u, np.full(50, 10.0))
    assert found.exclusive_ms[9] == pytest.approx(2 * found.stretch[9] + 5)
    assert found.stretch[9] > 1.05 / (1 - found.utilisation[9])


def _two_clusters(sampled: float) -> tuple:
    small, large = Pod(1, [10.0], constant_ms=3), Pod(1, [5.0], constant_ms=8)
    return simulated.tables(
        simulated.observe(small, LADDER, np.random.default_rng(1), "c1", sampled=sampled),
        simulated.observe(large, LADDER[::-1], np.random.default_rng(2), "c2", sampled=sampled),
    )


@pytest.mark.parametrize("sampled", [1.0, 0.25])
def test_clusters_give_one_curve_and_a_capacity_each(sampled):
    """A fast and a slow cluster are pooled by utilisation: a lies between theirs.

    Capacities are within 5 %, and counts are corrected for sampling.
    """
    [curve], found = Modeller(Options()).fit(*_two_clusters(sampled), 0)
    assert [row[4] for row in found] == [pytest.approx(100, rel=0.05), pytest.approx(200, rel=0.05)]
    assert 5 < curve[4] < 10


def test_a_cluster_whose_load_tells_nothing_is_assumed_and_not_learnt_from():
    """Its capacity row says so, and the curve is that of the other cluster."""
    tables = simulated.tables(
        simulated.observe(Pod(1, [10.0]), LADDER, np.random.default_rng(1), "c1"),
        simulated.observe(Pod(1, [50.0]), [0.1] * 5, np.random.default_rng(2), "c2"),
    )
    tables[1]._seconds.pop((simulated.SERVICE, "c2"))
    [curve], found = Modeller(Options()).fit(*tables, 0)
    assert "assumed as in c1" in found[1][6] and found[1][4] == found[0][4]
    alone = simulated.tables(simulated.observe(Pod(1, [10.0]), LADDER, np.random.default_rng(1), "c1"))
    assert curve[4:6] == Modeller(Options()).fit(*alone, 0)[0][0][4:6]


def test_overload_and_its_backlog_are_no_steady_state():
    """Half a minute at 1.5 times the capacity, then at a fifth of it.

    The backlog is served for 20 s more. Neither time is learned from. A fit over all of it would be
    wrong by a factor of several.
    """
    pod, random = Pod(1, [10.0], constant_ms=2), np.random.default_rng(4)
    quiet = simulated.observe(pod, LADDER, random)
    burst = np.concatenate([LADDER, np.full(30, 1.5), np.full(60, 0.2)])
    busy = simulated.observe(pod, burst, np.random.default_rng(4))
    [calm], [strained] = (Modeller(Options()).fit(*simulated.tables(seen), 0)[0] for seen in (quiet, busy))
    for u in (0.2, 0.5, 0.8):
        latency = strained[4] / (1 - u) + strained[5]
        assert latency == pytest.approx(10 / (1 - u) + 2, rel=0.2)
    assert calm[4] == pytest.approx(10, abs=3 * calm[6])


def test_rare_classes_do_not_stretch_the_model_s_memory():
    """Fifty classes with a call every twenty seconds hold seconds from hours.

    The model covers only as many seconds as the memory. It writes no buckets for others.
    """
    load, random = LoadTable(100, Counters()), np.random.default_rng(1)
    for k in range(50):
        at = np.sort(random.choice(2000, 100, replace=False))
        load.add_parts(Parts(at, np.zeros_like(at), [Key("s", f"s GET /{k}", "c")], np.ones((100, len(Sum)))))
    [(name, keys)] = service.gather(load).items()
    model = service.model(service.record(name, keys, load, CpuTable(10)), 600)
    at = model.clusters["c"].seconds.at
    assert len(at) == 100 and at[-1] == max(series.newest for series in load.series.values())
    rows = [dict(zip(BUCKETS, row, strict=True)) for row in bucket_rows(model, load.take_dirty())]
    assert rows and min(row["window_start"] for row in rows) >= at[0] // 60 * 60


def test_all_ten_buckets_of_a_minute_are_written():
    """A minute that is computed again leaves no old rows. The samples are those of its seconds."""
    load, cpu = simulated.tables(simulated.observe(Pod(1, [10.0]), LADDER, np.random.default_rng(1)))
    [key] = load.series
    [(name, keys)] = service.gather(load).items()
    fitted = Modeller(Options()).fit_service(service.record(name, keys, load, cpu), load.take_dirty(), 0)
    rows = [dict(zip(BUCKETS, row, strict=True)) for row in fitted.buckets]
    minutes = {row["window_start"] for row in rows}
    assert len(rows) == N_BUCKETS * len(minutes) and all(minute % 60 == 0 for minute in minutes)
    assert sum(row["samples"] for row in rows) == load.series[key].all()[1][:, 2].sum()
    assert {row["bucket"] for row in rows if row["samples"]} >= set(range(1, 8))


def test_only_news_are_stored():
    """A row is kept when its values moved by more than a hundredth, or after half a minute."""
    novelty = Novelty(identity=(1,), values=(2,))
    assert novelty.keep([(0, "x", 10.0)]) and not novelty.keep([(1000, "x", 10.05)])
    assert novelty.keep([(2000, "x", 11.0)]) and novelty.keep([(40_000, "x", 11.0)])
