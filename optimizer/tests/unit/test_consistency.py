"""Impossible input is refused by name, and input that is only unusual is noted."""

import dataclasses
import json
from pathlib import Path

import pytest
from spillway_contracts import topology
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.model import model

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = json.loads((Path(__file__).parent / "data" / "model.json").read_text())
TOPOLOGY = topology.load(ROOT / "contracts" / "golden" / "topology.yaml")
NOW = 1767225631.0
ENTRY = "gateway GET /items/{id}"


def _build(change, **fields):
    document = json.loads(json.dumps(DOCUMENT))
    change(document)
    read = telemetry.from_document(document)
    return model.build(dataclasses.replace(read, **fields), TOPOLOGY, NOW)


def _ahead(d):
    d["demand"]["west"][ENTRY]["at"] = NOW + 60


def _rows_ahead(d):
    d["curves"][0]["fitted_at"] = "2026-01-01 00:10:31.000"


def _backwards(d):
    d["call_ratios"][0]["input_window"] = "1767225630000-1767225600000"


def _after_itself(d):
    d["call_ratios"][0]["input_window"] = "1767225600000-1767225690000"


def _negative(d):
    d["call_ratios"][0]["calls_per_request"] = -1


def _apart(d):
    d["load"]["west"][ENTRY]["rps"] = 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rows_ahead, f"curves: row of {ENTRY!r} is 600 s ahead of this clock"),
        (_backwards, "input_window 1767225630000-1767225600000 must start before it ends"),
        (_after_itself, "and end before window_end 1767225630000"),
        (_negative, "calls_per_request -1 must be 0 to 10000"),
        (
            _apart,
            f"demand and load: {ENTRY!r} in 'west' is offered 450 req/s, of which the load board has 20.0",
        ),
    ],
)
def test_what_cannot_be_true_is_refused(change, message):
    """The refusal names the board or row, its value and what is allowed."""
    built = _build(change)
    assert built.problem is None
    assert any(message in reason for reason in built.refusals), built.refusals


def test_a_board_of_the_future_is_unknown():
    """Its cluster is held with a note that names the board and its lead. Nothing is refused."""
    built = _build(_ahead)
    assert built.problem is not None and built.refusals == ()
    message = "unknown: 'west': demand: board of 'west' is 60 s ahead of this clock; at most 10 s is allowed"
    assert any(note.startswith(message) for note in built.notes)


def test_demand_where_its_service_is_not_is_refused():
    """Demand is refused if neither heartbeat nor topology has the entry's service in the cluster.

    If the topology has it, a heartbeat without it is only noted.
    """
    services = frozenset({"gateway", "frontend", "backend"})
    placement = {"west": services - {"gateway"}, "east": services}
    assert _build(lambda d: None, placement=placement).problem is not None

    def elsewhere(d):
        for boards in (d["demand"], d["load"]):
            boards["west"]["shop GET /"] = {**boards["west"][ENTRY]}

    built = _build(elsewhere, placement={"west": services, "east": services})
    assert any("'shop GET /'" in reason and "places 'shop' there" in reason for reason in built.refusals)


def test_edges_of_different_traffic_are_noted():
    """A call was last seen before the window of its caller's other calls began."""

    def old(d):
        row = d["call_ratios"][0]
        d["call_ratios"].append(
            {**row, "class": "backend GET /items/{id}", "input_window": "1767225000000-1767225100000"}
        )

    built = _build(old)
    assert built.problem is not None
    assert any("were last seen before the window" in note for note in built.notes)


def test_a_clock_a_little_ahead_is_nothing():
    """Clocks of nodes may differ by seconds."""
    assert _build(lambda d: d["demand"]["west"][ENTRY].update(at=NOW + 5)).problem is not None
