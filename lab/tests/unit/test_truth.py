"""The truth follows from the application's file, and the comparison with it is fair."""

from pathlib import Path

import pytest
from spillway_lab.experiments import accuracy, truth
from spillway_lab.experiments.truth import Known, KnownService, Learned
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import LabError

LADDER = Path(__file__).resolve().parents[2] / "accuracy" / "ladder.yaml"


def test_the_ladder_s_truth_follows_from_its_application():
    """The true figures follow from the application's file.

    - Capacity is workers divided by the mix's mean service time.
    - Weights are ratios of service times.
    - Call ratios are probabilities and numbers of calls.
    - Services that are hardly busy are left out. One of them shows what proxies add.
    - A curve without load starts at the service time.
    - b is below a where little of the latency is the class's own.
    """
    known = truth.known(scenario.load(LADDER))
    assert sorted(known.services) == ["depot", "ledger", "stock"]
    assert (known.calm, known.calm_ms) == ("porter GET /doors/{id}", 10)
    stock = known.services["stock"]
    assert stock.saturation_rps == pytest.approx(1000 / (0.65 * 10 + 0.35 * 30))
    assert known.services["ledger"].saturation_rps == pytest.approx(4000 / 95)
    assert list(stock.weights.values()) == [1.0, 3.0]
    assert known.ratios["stock POST /orders/{id}", "ledger POST /entries/{id}"] == 2
    assert known.ratios["gateway GET /items/{id}", "depot GET /items/{id}"] == 0.25
    for service, service_ms in (("stock", 10), ("depot", 20)):
        a, b = known.services[service].curves[f"{service} GET /items/{{id}}"]
        assert a > 0 and a + b == pytest.approx(service_ms, rel=0.15)


def _known(a: float, b: float) -> Known:
    service = KnownService(
        100.0, {"a GET /x": 0.5, "a GET /y": 0.5}, {"a GET /x": 1.0, "a GET /y": 3.0}, {"a GET /x": (a, b)}
    )
    return Known({"a": service}, {("e GET /", "a GET /x"): 0.5}, "e GET /", 5.0, (0.0, 0.5))


def _calm(curve_ms: float, *windows_ms: float) -> Learned:
    return Learned({"e GET /": (0.0, curve_ms, 0.0, 1.0, "retrain")}, {}, {}, windows_ms)


def test_a_disturbed_machine_is_told_by_the_class_that_never_waits():
    """A disturbance shows in the overall mean or in ten seconds of the class that never waits.

    A machine of which nothing is known does not count as quiet.
    """
    known = _known(10.0, 0.0)
    assert known.disturbance(_calm(7.0, 7.1, 6.8, 9.5)) == ""
    assert "3.5 ms longer than its service time although" in known.disturbance(_calm(8.5, 7.0))
    assert "6.9 ms longer than its service time for ten seconds" in known.disturbance(_calm(7.0, 7.1, 11.9))
    assert "whether the machine stalled" in known.disturbance(_calm(7.0))
    with pytest.raises(LabError, match="e GET /: no curve"):
        known.disturbance(Learned({}, {}, {}, (7.0,)))


def test_errors_are_relative_and_hold_what_proxies_add():
    """Errors are relative, and what proxies add is part of every true latency.

    A capacity counts requests of the baseline class: 220 of these are 110 of a mix with weight 2.
    The entry's 2 ms above its service time are added to every true value. A missing row is an error
    of 100 %.
    """
    learned = Learned(
        {
            "a GET /x": (10.0, 2.0, 1.0, 1.0, "retrain"),
            "a GET /y": (10.0, 2.0, 1.0, 3.0, "retrain"),
            "e GET /": (1.0, 6.0, 0.0, 1.0, "retrain"),
        },
        {"a": (220.0, "cpu", "line")},
        {("e GET /", "a GET /x"): 0.55},
        (5.0,),
    )  # fmt: skip
    rows = {(row.kind, row.of): row for row in accuracy.compare(_known(10.0, 0.0), learned)}
    assert rows["saturation", "a"].error == pytest.approx(0.10)
    assert rows["weight", "a GET /y"].error == 0
    assert rows["L(0.5)", "a GET /x"].error == pytest.approx(0) and rows["L(0)", "a GET /x"].true == 12
    assert rows["ratio", "e GET / -> a GET /x"].error == pytest.approx(0.1)
    nothing = accuracy.compare(_known(10.0, 0.0), _calm(5.0))
    assert {row.error for row in nothing} == {-1.0}
    assert accuracy.summary(nothing)["ratio"] == {"median": 1.0, "largest": 1.0}
