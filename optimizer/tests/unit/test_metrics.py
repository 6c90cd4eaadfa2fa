"""GET /metrics of the optimizer and of PAPA."""

import logging
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from spillway_contracts.hot_state import DemandEntry
from spillway_lab.testing import servers
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.states import States
from spillway_optimizer.solving import metrics
from spillway_runtime import health
from spillway_runtime.metrics import table

REFERENCE = Path(__file__).parents[2] / "REFERENCE.md"


def _exposition(states: States, role: str = "optimizer", held: bool = True):
    return metrics.exposition(role, states, SimpleNamespace(held=lambda: held))


def _samples(exposition) -> dict[tuple[str, str], float]:
    samples = [s for f in text_string_to_metric_families(exposition.text().decode()) for s in f.samples]
    return {
        (s.name.removeprefix("spillway_optimizer_"), ",".join(s.labels.values())): s.value for s in samples
    }


def test_metrics_and_the_reference_agree():
    """The listener serves exactly the families in REFERENCE.md, even before any solve."""
    port = servers.free_port()
    exposition = _exposition(States(logging.getLogger("test")))
    server = health.Server(f"127.0.0.1:{port}", lambda: health.Report({}), exposition)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert table(metrics.FAMILIES) in REFERENCE.read_text(), f"paste:\n{table(metrics.FAMILIES)}"
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE spillway_")}
    assert served == {family.name for family in metrics.FAMILIES}


def test_every_counter_is_served_once_and_refusals_are_told_apart():
    """A refused solve of the optimizer and a PAPA turn without result are separate metrics."""
    states = States(logging.getLogger("test"))
    for name in (
        "proposed",
        "refused",
        "kept",
        "urgent.load",
        "audit.wrong",
        "redis_away",
        "malformed",
        "unknown_policy",
    ):
        states.counters[name] += 1
    found = _samples(_exposition(states))
    for name in (
        ("solves_total", "proposed"),
        ("solves_total", "refused"),
        ("papa_steps_total", "kept"),
        ("urgent_solves_total", "load"),
        ("audits_total", "wrong"),
        ("server_away_total", "redis"),
        ("malformed_input_total", ""),
        ("counted_total", "unknown_policy"),
        ("leader", "optimizer"),
    ):
        assert found[name] == 1, name
    assert found["papa_refused_total", ""] == 0 and ("solves_total", "audit.wrong") not in found
    papa = _samples(_exposition(states, "papa", held=False))
    assert papa["papa_refused_total", ""] == 1 and ("solves_total", "refused") not in papa
    assert papa["leader", "papa"] == 0


def test_what_is_observed_is_weighted_by_demand_and_fresh():
    """The mean is weighted by rate, and old entries are ignored.

    Without fresh entries, the prediction error is not updated.
    """
    entry = {"failed_share": 0.0}
    telemetry = Telemetry(
        demand={
            "west": {"a GET /": DemandEntry(at=100.0, rps=30.0, duration_ms=10.0, **entry)},
            "east": {
                "a GET /": DemandEntry(at=99.0, rps=10.0, duration_ms=50.0, **entry),
                "b GET /": DemandEntry(at=10.0, rps=90.0, duration_ms=900.0, **entry),
            },
        }
    )
    states = States(logging.getLogger("test"))
    metrics.note_input(states, telemetry)
    metrics.note_prediction(states, 16.0, metrics.observed_ms(telemetry, 101.0, 15.0))
    found = _samples(_exposition(states))
    assert found["observed_mean_latency_seconds", ""] == pytest.approx(0.02)
    assert found["prediction_error_ratio", ""] == pytest.approx(0.25)
    assert found["input_timestamp_seconds", "demand,east"] == 99.0
    assert metrics.observed_ms(telemetry, 1000.0, 15.0) == 0.0
    metrics.note_prediction(states, 0.0, 12.0)
    assert states.gauges["prediction_error_ratio",] == pytest.approx(0.25)
