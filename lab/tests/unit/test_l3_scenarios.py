"""The scenarios of the L3 paper have the ranges that its text gives, and are what is generated."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from spillway_lab.scenario import scenario

LAB = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("l3_scenarios", LAB / "generators/l3.py")
l3 = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(l3)


@pytest.mark.parametrize("trace", (*l3.TRACES, *l3.LIVE), ids=lambda trace: trace.name)
def test_a_scenario_is_what_is_generated_and_can_be_read(trace):
    path = LAB / f"scenarios/{trace.name}.yaml"
    assert path.read_text() == l3.text(trace)
    found = scenario.load(path).document
    assert found.load.measure.seconds == trace.measured_s
    for event in found.events:
        median = l3.BASE_P50_MS / event.service.speed
        highest = trace.p50_ms.peak[1] if trace.p50_ms.peak else trace.p50_ms.high
        assert trace.p50_ms.low * 0.99 <= median <= highest * 1.01
        assert 0 <= event.service.delay_ms <= trace.p99_ms.high


@pytest.mark.parametrize(
    ("name", "success"), [("l3-failure-1", 0.914), ("l3-failure-2", 0.985), ("l3-failure-1-live", 0.914)]
)
def test_failures_are_as_frequent_as_in_the_paper(name, success):
    """Section 5.3.2: the average success rate of all clusters, as round robin has it."""
    events = scenario.load(LAB / f"scenarios/{name}.yaml").document.events
    failed = np.mean([event.service.error_rate for event in events])
    assert 1 - failed == pytest.approx(success, abs=0.012)
