"""The order of rounds, when a system has settled, and what a round comes to in scenario time."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.experiments import lab, measured, settling
from spillway_lab.experiments.measured import Measured
from spillway_lab.load.machine import Busyness
from spillway_lab.load.samples import Samples
from spillway_lab.report import outcome, results
from spillway_lab.report.statistics import Comparison
from spillway_lab.scenario import scenario, variants
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios/two-clusters.yaml"
QUIET, BUSY = Busyness(2, 0.5, 0.1), Busyness(2, 0.9, 0.1)


def test_policies_take_turns_in_both_directions() -> None:
    """A B C, C B A, A B C: a slow change of the machine falls on all alike."""
    found = variants.interleaved(["a", "b", "c"], 3)
    assert "".join(policy for policy, _ in found) == "abccbaabc"
    assert [repetition for _, repetition in found] == [0] * 3 + [1] * 3 + [2] * 3


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True), st.integers(1, 6))
def test_every_policy_has_every_repetition_once(policies: list[str], repetitions: int) -> None:
    """Whatever the policies are, each is measured as often as asked for."""
    counted = Counter(variants.interleaved(policies, repetitions))
    assert set(counted.values()) == {1}
    assert len(counted) == len(policies) * repetitions


@pytest.mark.parametrize(
    ("in_flight", "expected"),
    [
        ([], False),
        ([10] * 5, False),  # too short to compare
        ([10] * 12, True),
        ([100 - 5 * t for t in range(12)], False),  # draining
        ([10 + 5 * t for t in range(12)], True),  # growing: may be what the policy does
        ([8, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], True),  # idle
    ],
)
def test_queues_have_settled_when_they_drain_no_longer(in_flight: list[int], expected: bool) -> None:
    """Two windows in a row are compared, from one look per second."""
    assert settling.settled([(float(t), n) for t, n in enumerate(in_flight)]) is expected


def loaded(k: float = 2.0) -> Scenario:
    found = scenario.load(SHIPPED)
    return found.model_copy(update={"document": found.document.model_copy(update={"time_scale": k})})


def samples(at_s: list[float], latency_ms: float, failed: int = 0) -> Samples:
    n = len(at_s)
    return Samples(
        np.array(at_s),
        np.full(n, latency_ms),
        np.array([503] * failed + [200] * (n - failed)),
        np.zeros(n, int),
        np.array([""] * n),
        np.zeros(n, int),
    )


def round_of(policy: str, began_s: float, machine: Busyness = QUIET, repetition: int = 0) -> Measured:
    return Measured(policy, repetition, began_s, 28.0, 0.01, machine, {"share": [(10.0, 0.5)]})


def test_results_are_in_scenario_time(tmp_path: Path) -> None:
    """Latency and time are divided by the scale, an hour's egress is multiplied, and a failed
    request has the client's timeout. Requests outside of the round are left out."""
    by_cluster = {"west": samples([99.0, 100.0, 110.0, 128.0], 50, failed=2), "east": samples([127.0], 30)}
    run, columns = measured.run_of(loaded(), [round_of("local", 100.0)], by_cluster, datetime.now(UTC), {})
    results.write(tmp_path, run, columns)
    read, [found] = results.read(tmp_path)
    assert found.at_s.tolist() == [0.0, 5.0, 13.5]
    assert found.latency_ms.tolist() == [10_000.0, 25.0, 15.0]
    assert found.cluster.tolist() == [0, 0, 1]
    [only] = read.rounds
    assert (only.sent, only.failed, only.egress_usd_per_hour) == (3, 1, 0.02)
    assert only.series == {"share": ((5.0, 0.5),)}
    assert only.disturbed is False


def test_a_disturbed_run_has_no_conclusion() -> None:
    """The ratio is still shown. Only that of a quiet machine leads to a conclusion."""
    at = [float(x) / 10 for x in range(280)]
    for machine, expected in ((QUIET, " Spillway is faster."), (BUSY, " No conclusion: the machine was")):
        found, by_cluster = [], samples([], 1)
        pieces = []
        for repetition in range(3):
            for i, (policy, ms) in enumerate((("waterfall", 200.0), ("spillway", 100.0 + repetition))):
                began = 1000.0 * (2 * repetition + i)
                found.append(round_of(policy, began, machine, repetition))
                pieces.append(samples([began + x for x in at], ms))
        by_cluster = {"west": measured.concatenate(pieces)}
        run, columns = measured.run_of(loaded(), found, by_cluster, datetime.now(UTC), {})
        [line] = outcome.verdicts(run, Comparison(run, columns))
        assert line.startswith("Mean of spillway / waterfall: 0.5")
        assert expected in line
        assert bool(outcome.disturbance(run)) is (machine is BUSY)


def test_policies_that_cannot_be_run_live_are_refused() -> None:
    """The error names the scenario, the policy and the reason. Nothing is started."""
    found = loaded()
    document = found.document.model_copy(update={"policies": ["spillway", "papa-only"]})
    with pytest.raises(InvalidInput, match="two-clusters: policies: 'papa-only' cannot be run live"):
        lab.refuse(found.model_copy(update={"document": document}))
    lab.refuse(found)


def test_a_round_that_outlasts_frozen_curves_is_refused() -> None:
    """Curves can be frozen for ten minutes, so a longer round would not be what it says."""
    found = loaded(20)
    document = found.document.model_copy(update={"policies": ["spillway-frozen-curves"]})
    with pytest.raises(InvalidInput, match="a round takes 480 s|a round takes"):
        lab.refuse(found.model_copy(update={"document": document.model_copy(update={"time_scale": 50})}))
