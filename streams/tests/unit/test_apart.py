"""A change that one cluster alone shows is that cluster's, and changes no other's curve."""

from collections.abc import Mapping

import numpy as np
import pytest
from accuracy import simulated
from accuracy.simulated import Pod
from spillway_streams.curves import apart
from spillway_streams.curves.apart import Apart
from spillway_streams.model.modelling import CURVES, Modeller, Options

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)
START, STEP_S, QUIET = 1_700_000_000, 10, 0.25
CLUSTERS = ("central", "south", "west")


class Clusters:
    """Clusters of one service, of which each was seen at all loads before anything changes."""

    def __init__(self, names: tuple[str, ...] = CLUSTERS) -> None:
        self._names, self._random, self._at = names, np.random.default_rng(1), START
        self._modeller = Modeller(Options())
        self._tables = simulated.tables(*(self._observed(name, LADDER, 0.0) for name in names))
        self._at += len(LADDER)
        self.fit()

    def _observed(self, name: str, load: np.ndarray, slower_ms: float) -> tuple:
        pod = Pod(2, [20.0], constant_ms=10 + slower_ms)
        return simulated.observe(pod, load, self._random, name, start=self._at)

    def fit(self) -> dict:
        [curve], _ = self._modeller.fit(*self._tables, self._at * 1000)
        self.curve = dict(zip(CURVES, curve, strict=True))
        return self.curve

    def go_on(self, seconds: int, slower_ms: Mapping[str, float]) -> dict:
        """Returns the curve after more seconds at a quarter of the capacity.

        Clusters that `slower_ms` does not name have no requests.
        """
        for _ in range(seconds // STEP_S):
            for name, ms in slower_ms.items():
                calls, points = self._observed(name, np.full(STEP_S, QUIET), ms)
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
    assert "left out, as only they differ: central by +1" in curve["reason"]


def test_a_change_that_all_clusters_show_is_followed():
    """A version that takes 50 ms longer everywhere is the service's, so the curve has it soon."""
    clusters = Clusters()
    before = clusters.time_ms()
    curve = clusters.go_on(120, dict.fromkeys(CLUSTERS, 50))
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)
    assert "left out" not in curve["reason"]


def test_a_version_that_comes_to_one_cluster_after_the_other_is_followed_when_all_have_it():
    clusters = Clusters(("a", "b"))
    before = clusters.time_ms()
    clusters.go_on(120, {"a": 50, "b": 0})
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)
    clusters.go_on(700, {"a": 50, "b": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_a_cluster_is_learned_from_again_when_it_is_as_the_others():
    clusters = Clusters()
    clusters.go_on(120, {"central": 150, "south": 0, "west": 0})
    curve = clusters.go_on(120, dict.fromkeys(CLUSTERS, 0))
    assert "left out" not in curve["reason"]


def test_without_a_cluster_that_is_normal_a_difference_is_the_service_s_after_ten_minutes():
    """Others have no requests any more. What is seen then is all that there is to expect."""
    clusters = Clusters()
    before = clusters.time_ms()
    clusters.go_on(120, {"central": 50, "south": 0, "west": 0})
    clusters.go_on(300, {"central": 50})
    assert clusters.time_ms() == pytest.approx(before, rel=0.1)
    clusters.go_on(420, {"central": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_one_cluster_alone_is_always_followed():
    """Nothing shows that a change is not one of the service, so it is taken for one."""
    clusters = Clusters(("west",))
    before = clusters.time_ms()
    clusters.go_on(120, {"west": 50})
    assert clusters.time_ms() == pytest.approx(before + 50, rel=0.1)


def test_a_cluster_that_differs_from_the_start_is_pooled():
    """Clusters of unequal machines have one curve between theirs, as SLATE has it."""
    clusters = Clusters(("fast", "slow"))
    curve = clusters.go_on(60, {"fast": -8, "slow": 8})
    assert "left out" not in curve["reason"]


def test_times_that_have_ended_are_forgotten_with_their_samples():
    lasting, ended = Apart(10, 90, 5.0), Apart(10, 40, 5.0, until=50)
    assert apart.kept({"a": (ended, lasting), "b": (ended,)}, 50) == {"a": (lasting,)}
    at = np.arange(0, 100, 10)
    assert apart.mask({"a": (ended,)}, "a", at).tolist() == [10 <= second < 50 for second in at]
    assert not apart.mask({"a": (ended,)}, "b", at).any()
