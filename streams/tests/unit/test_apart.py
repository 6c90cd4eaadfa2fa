"""A change that one cluster alone shows is that cluster's, and changes no other's curve."""

from collections.abc import Mapping

import numpy as np
import pytest
from accuracy import simulated
from accuracy.simulated import Pod
from spillway_streams.curves import apart
from spillway_streams.curves.apart import Apart, Seen, State
from spillway_streams.curves.buckets import N_BUCKETS, Buckets, collect
from spillway_streams.model.modelling import CURVES, Modeller, Options

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)
START, STEP_S, QUIET = 1_700_000_000, 10, 0.25
CLUSTERS = ("central", "south", "west")


class Clusters:
    """Clusters of one service, of which each was seen at all loads before anything changes."""

    def __init__(self, names: tuple[str, ...] = CLUSTERS, slower_ms: Mapping[str, float] = {}) -> None:
        self._random, self._at, self._modeller = np.random.default_rng(1), START, Modeller(Options())
        observed = (self._observed(name, LADDER, slower_ms.get(name, 0.0)) for name in names)
        self._tables = simulated.tables(*observed)
        self._at += len(LADDER)
        self.fit()

    def _observed(self, name: str, load: np.ndarray, slower_ms: float) -> tuple:
        pod = Pod(2, [20.0], constant_ms=10 + slower_ms)
        return simulated.observe(pod, load, self._random, name, start=self._at)

    def fit(self) -> dict:
        [curve], _ = self._modeller.fit(*self._tables, self._at * 1000)
        self.curve = dict(zip(CURVES, curve, strict=True))
        return self.curve

    def go_on(self, seconds: int, slower_ms: Mapping[str, float], load: Mapping[str, float] = {}) -> dict:
        """Returns the curve after more seconds at a `load`, by default a quarter of the capacity.

        Clusters that `slower_ms` does not name have no requests.
        """
        for _ in range(seconds // STEP_S):
            for name, ms in slower_ms.items():
                calls, points = self._observed(name, np.full(STEP_S, load.get(name, QUIET)), ms)
                self._tables[0].add(calls)
                self._tables[1].add(points)
            self._at += STEP_S
            self.fit()
        return self.curve

    def time_ms(self) -> float:
        return self.curve["a_ms"] / (1 - QUIET) + self.curve["b_ms"]


def test_a_cluster_that_alone_becomes_slower_changes_no_curve():
    """150 ms for five minutes, in which new data cover all that the curve rests on at that load."""
    clusters = Clusters()
    before = clusters.time_ms()
    curve = clusters.go_on(300, {"central": 150, "south": 0, "west": 0})
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)
    assert "left out, as others have not changed: central by +1" in curve["reason"]


def test_a_change_that_all_clusters_show_is_followed():
    """A version that takes 50 ms longer everywhere is the service's, so the curve has it soon."""
    clusters = Clusters()
    before = clusters.time_ms()
    curve = clusters.go_on(120, dict.fromkeys(CLUSTERS, 50))
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)
    assert "left out" not in curve["reason"]


def test_a_version_that_comes_to_one_cluster_after_the_other_is_followed_when_both_have_it():
    clusters = Clusters(("a", "b"))
    before = clusters.time_ms()
    clusters.go_on(120, {"a": 50, "b": 0})
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)
    clusters.go_on(120, {"a": 50, "b": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_most_clusters_outvote_the_one_that_has_not_changed():
    """Three of four have the new version. The last one does not hold the curve back."""
    clusters = Clusters(("a", "b", "c", "d"))
    before = clusters.time_ms()
    for _ in range(30):
        curve = clusters.go_on(20, {"a": 50, "b": 50, "c": 50, "d": 0})
        assert "left out" not in curve["reason"]
    assert clusters.time_ms() > before + 30


def test_a_cluster_is_learned_from_again_when_its_times_are_as_before():
    clusters = Clusters()
    clusters.go_on(120, {"central": 150, "south": 0, "west": 0})
    curve = clusters.go_on(120, dict.fromkeys(CLUSTERS, 0))
    assert "left out" not in curve["reason"]


def test_a_cluster_that_hardly_gets_requests_any_more_stays_apart():
    """PAPA has emptied it. For longer than ten minutes, too few requests show how it is."""
    clusters = Clusters()
    before = clusters.time_ms()
    clusters.go_on(60, {"central": 150, "south": 0, "west": 0})
    curve = clusters.go_on(700, {"central": 150, "south": 0, "west": 0}, {"central": 0.01})
    assert "central by" in curve["reason"]
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)


def test_without_a_cluster_that_is_as_before_a_change_is_the_service_s_after_ten_minutes():
    """Others have no requests any more. What is seen then is all that there is to expect."""
    clusters = Clusters()
    before = clusters.time_ms()
    clusters.go_on(120, {"central": 50, "south": 0, "west": 0})
    clusters.go_on(300, {"central": 50})
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)
    clusters.go_on(480, {"central": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_one_cluster_alone_is_always_followed():
    """Nothing shows that a change is not one of the service, so it is taken for one."""
    clusters = Clusters(("west",))
    before = clusters.time_ms()
    clusters.go_on(120, {"west": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_a_cluster_of_slower_machines_is_pooled_with_the_others():
    """It takes three times as long from the start, so nothing has changed in it."""
    clusters = Clusters(slower_ms={"central": 60})
    curve = clusters.go_on(300, {"central": 60, "south": 0, "west": 0})
    assert "left out" not in curve["reason"]


def seen(before_ms: float, recent_ms: float, bucket: int = 2, n: int = 600, recent_n: int = 60) -> Seen:
    """Times in one bucket of utilisation, a sample a second, which scatter by a tenth."""

    def made(ms: float, seconds: int) -> Buckets:
        at, u = np.arange(seconds), np.full(seconds, (bucket + 0.5) / N_BUCKETS)
        wobble = 1 + 0.1 * np.where(at // 20 % 2, 1, -1)
        return collect(at // 20, u, ms * wobble, 0.1 * ms * wobble, np.ones(seconds))

    return Seen(made(recent_ms, recent_n), made(before_ms, n))


SLOW, AS_BEFORE = seen(20, 60), seen(20, 20)


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ({"a": SLOW, "b": AS_BEFORE}, {"a"}),
        ({"a": SLOW, "b": AS_BEFORE, "c": seen(200, 200)}, {"a"}),
        ({"a": seen(60, 20), "b": AS_BEFORE}, {"a"}),
        ({"a": SLOW}, set()),
        ({"a": SLOW, "b": SLOW}, set()),
        ({"a": SLOW, "b": SLOW, "c": AS_BEFORE}, set()),
        ({"a": SLOW, "b": SLOW, "c": AS_BEFORE, "d": AS_BEFORE}, {"a", "b"}),
        ({"a": seen(20, 28), "b": AS_BEFORE}, set()),
        ({"a": seen(20, 60, bucket=7), "b": AS_BEFORE}, set()),
        ({"a": SLOW, "b": seen(20, 28)}, set()),
        ({"a": seen(20, 60, n=20), "b": AS_BEFORE}, set()),
        ({"a": seen(20, 60, recent_n=20), "b": AS_BEFORE}, set()),
    ],
)
def test_few_that_have_changed_beside_others_that_have_not_are_apart(
    clusters: dict[str, Seen], expected: set[str]
):
    """Not apart: one alone, most, a change of less than a half, a busy cluster, too few samples."""
    times = apart.update(State(), clusters, 30, 100, 40).times
    assert set(times) == expected
    assert all(its[-1].since == 40 and its[-1].lasts for its in times.values())


def test_a_busier_cluster_is_seen_to_be_as_before_at_any_utilisation():
    both = Seen(seen(20, 20, bucket=7).recent, seen(20, 20).before)
    before = [np.nan] * N_BUCKETS
    before[2] = before[7] = 20.0
    lasting = State({"a": (Apart(40, 90, 40.0, tuple(before)),)})
    assert not apart.update(lasting, {"a": both, "b": AS_BEFORE}, 30, 100, 40).times["a"][-1].lasts


def test_a_cluster_that_is_apart_is_no_witness_of_another():
    """The other one's time ends ten minutes after a cluster that is as before was last seen."""
    lasting = State({name: (Apart(40, 100, 40.0, (20.0,) * N_BUCKETS),) for name in ("a", "b")})
    unclear = {name: seen(20, 28) for name in lasting.times}
    for now, lasts in ((700, True), (701, False)):
        found = apart.update(lasting, unclear, 30, now, now - 60).times
        assert {its[-1].lasts for its in found.values()} == {lasts}


def test_times_that_have_ended_are_forgotten_with_their_samples():
    lasting, ended = Apart(10, 90, 5.0, ()), Apart(10, 40, 5.0, (), until=50)
    assert State({"a": (ended, lasting), "b": (ended,)}).kept(50).times == {"a": (lasting,)}
    at = np.arange(0, 100, 10)
    assert State({"a": (ended,)}).mask("a", at).tolist() == [10 <= second < 50 for second in at]
    assert not State({"a": (ended,)}).mask("b", at).any()


def test_after_a_change_of_the_service_clusters_are_compared_with_what_came_since():
    state = apart.update(State(), {"a": SLOW, "b": SLOW}, 30, 1000, 940)
    assert (state.times, state.changed_at) == ({}, 1000)
    assert (state.before_from(1060), state.before_from(1700)) == (1000, 1100)
