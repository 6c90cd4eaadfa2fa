"""The policies are in the order that theory predicts. A disturbed machine leads to no conclusion.

It has a stack of its own, because its load and its policies are part of what it shows.
"""

from pathlib import Path

import numpy as np
import pytest
from spillway_lab.experiments import lab, theory
from spillway_lab.report import outcome, results
from spillway_lab.scenario import scenario

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SCENARIO = Path(__file__).with_name("order.yaml")


def test_policies_are_in_the_predicted_order(tmp_path: Path) -> None:
    """Every round of local is slower than any other, and Spillway is faster than Waterfall.

    Two short rounds do not separate Spillway and Waterfall round by round, so all of their
    requests decide.
    """
    given = scenario.load(SCENARIO)
    predicted = theory.predict(given)
    assert predicted["spillway"].mean_ms < 0.8 * predicted["waterfall"].mean_ms
    run = lab.run(given, "order", tmp_path)
    if disturbed := outcome.disturbance(run):
        pytest.skip(f"no conclusion, the machine was disturbed.{disturbed}")
    _, samples = results.read(tmp_path / given.name)
    found: dict[str, list[np.ndarray]] = {}
    for each, its_samples in zip(run.rounds, samples, strict=True):
        found.setdefault(each.policy, []).append(its_samples.latency_ms)
        if each.policy != "local":
            assert each.failed == 0, each
    others = found["waterfall"] + found["spillway"]
    assert max(x.mean() for x in others) < min(x.mean() for x in found["local"])
    assert np.concatenate(found["spillway"]).mean() < np.concatenate(found["waterfall"]).mean()
