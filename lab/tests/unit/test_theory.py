"""Predictions from queueing theory: known values, and agreement with a simulation of the queues."""

import math
from pathlib import Path

import pytest
from spillway_lab.experiments import theory
from spillway_lab.scenario import scenario
from spillway_lab.scenario.loads import Segment
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED, DEMO = SCENARIOS / "two-clusters.yaml", SCENARIOS / "repeated-calls.yaml"


def test_an_overloaded_queue_has_no_mean() -> None:
    """At and above its capacity, a queue grows without bound."""
    assert math.isinf(theory.sojourn_ms(4, 40, 100))
    assert theory.sojourn_ms(4, 40, 0) == 40


def test_the_chain_agrees_with_a_simulation_of_its_queues() -> None:
    """Mean times at the backend under 90 requests per second are those of simulated queues."""
    loaded = scenario.load(SHIPPED)
    engine = Engine(World(Indices(loaded)), seed=1)
    engine.set_weights(engine.indices.weights({}))
    engine.load({"west": [Segment(4000, 90, 90)]}, poisson=True)
    engine.run(4000)
    counts = engine.counts()
    found = 1000 * counts.own_s[:, 0] / counts.served[:, 0]
    for (name, endpoint), mean_ms in zip(engine.indices.endpoints(), found, strict=True):
        workers = loaded.application.services[name].workers
        assert mean_ms == pytest.approx(
            theory.sojourn_ms(workers, endpoint.service_time.mean_ms, 90), rel=0.1
        )


def test_the_demo_is_predicted_as_the_record_says() -> None:
    """What ADR 50 and the README state is what the formula gives for the shipped file."""
    found = theory.predict(scenario.load(DEMO))
    waterfall, best = found["waterfall"], found["spillway"]
    assert waterfall.shares == pytest.approx((0, 0.393), abs=5e-4)
    assert waterfall.mean_ms == pytest.approx(154.3, abs=0.05)
    assert best.shares == (0.39, 0.0)
    assert best.mean_ms == pytest.approx(107.0, abs=0.05)
    assert waterfall.egress_usd_per_hour == pytest.approx(0.0254, abs=5e-5)
    assert best.egress_usd_per_hour == pytest.approx(0.0084, abs=5e-5)


def test_calls_in_turn_add_up() -> None:
    """Each of three calls may cross.

    All requests are sent away, at one call or the other. Queues are then the same, and the two
    routings differ by two round trips of 66 ms.
    """
    loaded = scenario.load(DEMO)
    hops = theory.chain(loaded)
    assert hops is not None
    assert [hop.calls for hop in hops] == [1, 1, 3]
    rates = {"west": 10.0, "east": 0.0}
    load = loaded.document.load
    measure = load.measure.model_copy(update={"rps": rates})
    document = loaded.document.model_copy(update={"load": load.model_copy(update={"measure": measure})})
    few = loaded.model_copy(update={"document": document})
    once, thrice = theory.at(few, hops, (1.0, 0.0)), theory.at(few, hops, (0.0, 1.0))
    assert thrice.mean_ms - once.mean_ms == pytest.approx(2 * 66)
    assert thrice.egress_usd_per_hour == pytest.approx(3 * once.egress_usd_per_hour)


def test_a_threshold_at_the_knee_suits_one_hop() -> None:
    """What ADR 50 states of two-clusters.yaml, where a request calls the backend once."""
    found = theory.predict(scenario.load(SHIPPED))
    waterfall, best = found["waterfall"], found["spillway"]
    assert waterfall.shares == pytest.approx((0, 43.5 / 110))
    assert waterfall.mean_ms == pytest.approx(68.3, abs=0.05)
    assert best.shares == (0.42, 0.0)
    assert best.mean_ms == pytest.approx(68.2, abs=0.05)
    assert waterfall.egress_usd_per_hour / best.egress_usd_per_hour == pytest.approx(3.77, abs=0.005)


def test_waterfall_is_a_matter_of_its_threshold() -> None:
    """The means that ADR 50 states for other thresholds, in requests per second of the west."""
    loaded = scenario.load(SHIPPED)
    hops = theory.chain(loaded)
    found = {kept: theory.at(loaded, hops, (0.0, 1 - kept / 110)).mean_ms for kept in (60, 80, 85, 90, 95)}
    assert found == pytest.approx({60: 68.6, 80: 77.7, 85: 89.1, 90: 114.4, 95: 195.4}, abs=0.05)


def test_the_best_routing_is_no_worse_than_any_other() -> None:
    """No single share at one call gives a smaller objective, which here is nearly the mean."""
    loaded = scenario.load(SHIPPED)
    hops = theory.chain(loaded)
    best = theory.best(loaded, hops)
    others = [theory.at(loaded, hops, (x / 50, y / 50)) for x in range(50) for y in range(50)]
    assert best.mean_ms <= min(x.mean_ms for x in others) + 0.1


def test_no_prediction_without_a_chain() -> None:
    """Two kinds of requests, more pods or a load over time are not predicted."""
    loaded = scenario.load(SHIPPED)
    [request] = loaded.document.requests
    document = loaded.document.model_copy(update={"requests": [request, request]})
    assert theory.predict(loaded.model_copy(update={"document": document})) == {}
