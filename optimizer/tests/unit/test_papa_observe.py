"""What PAPA compares: times against the curve at the load of the moment, and costs."""

import dataclasses
import json
import random
from pathlib import Path

import pytest
from spillway.v1.ruleset_pb2 import Destination, Origin, Rule, Ruleset
from spillway_contracts import topology, traffic_class
from spillway_contracts.guardrails import Guardrails
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.model.model import build
from spillway_optimizer.papa.observe import Sample, sample, steady
from spillway_optimizer.policies.projection import project
from spillway_optimizer.policies.round_robin import RoundRobin
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.rulesets.integer_weights import integer_rules

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY = topology.load(ROOT / "contracts" / "golden" / "topology.yaml")
INPUTS = telemetry.from_document(json.loads((Path(__file__).parent / "data" / "model.json").read_text()))
NOW = 1767225631.0
PROBLEM = build(INPUTS, TOPOLOGY, NOW).problem
EVEN = integer_rules(PROBLEM, project(PROBLEM, RoundRobin().route(PROBLEM)))


def observed(rulesets=None, cluster="", class_id="", **values):
    """Returns a sample under even splits, with these values of one entry of the load boards."""
    load = {c: dict(board) for c, board in INPUTS.load.items()}
    if class_id:
        load[cluster][class_id] = dataclasses.replace(load[cluster][class_id], **values)
    seen = dataclasses.replace(INPUTS, load=load)
    in_force = InForce(EVEN, Origin.ORIGIN_OPTIMIZER, "spillway", {}, "r", rulesets or {})
    return sample(seen, in_force, TOPOLOGY, NOW, 15.0, Guardrails())


def pair() -> tuple[RuleKey, str]:
    """Returns a rule with two destinations, and the one of them that is not its own cluster."""
    found = observed().gaps_ms
    return next((key, to) for key, to in sorted(found) if to != key.source_cluster)


def curve_ms(class_id: str, cluster: str, **loads: float) -> float:
    """Returns the curve's time at the load of the boards; `loads` replaces the class's own."""
    service, load = PROBLEM.classes[class_id], INPUTS.load[cluster]
    rps = {k: loads.get("rps", e.rps) if k == class_id else e.rps for k, e in load.items()}
    used = sum(rps[k] * PROBLEM.curves[k].norm_weight for k in rps if PROBLEM.classes.get(k) == service)
    curve, u = PROBLEM.curves[class_id], used / PROBLEM.capacity_rps[service, cluster]
    assert u < 0.95
    return curve.a_ms / (1 - u) + curve.b_ms


def test_a_destination_as_fast_as_its_curve_has_no_gap_at_any_load():
    """The curve is read at the observed load, not at the one that the rules were planned for."""
    key, to = pair()
    for factor in (0.5, 1.0):
        rps = INPUTS.load[to][key.class_id].rps * factor
        ms = curve_ms(key.class_id, to, rps=rps)
        found = observed(cluster=to, class_id=key.class_id, rps=rps, exclusive_ms=ms)
        assert found.gaps_ms[key, to] == pytest.approx(0.0, abs=1e-6)


def test_a_slower_destination_has_a_gap_and_costs_as_much_more():
    key, to = pair()
    ms = curve_ms(key.class_id, to)
    at, slow = (observed(cluster=to, class_id=key.class_id, exclusive_ms=ms + more) for more in (0.0, 40.0))
    assert slow.gaps_ms[key, to] == pytest.approx(-40.0)
    assert slow.costs_ms[key, to] - at.costs_ms[key, to] == pytest.approx(40.0)


def test_a_loaded_destination_costs_more_although_it_is_as_fast_as_its_curve():
    """One more request makes all others wait: that is in the cost and not in the gap."""
    key, to = pair()
    costs = []
    for factor in (0.5, 1.0):
        rps = INPUTS.load[to][key.class_id].rps * factor
        ms = curve_ms(key.class_id, to, rps=rps)
        costs.append(observed(cluster=to, class_id=key.class_id, rps=rps, exclusive_ms=ms).costs_ms[key, to])
    assert costs[1] > costs[0]


def test_a_network_that_has_become_slower_is_a_gap():
    """It is compared with the round trip that the rule was made with."""
    key, to = pair()
    rtt_ms = PROBLEM.rtt_ms[key.source_cluster, to]
    planned = Destination(cluster=to, weight=5000, predicted_compute_ms=1.0, predicted_network_ms=rtt_ms - 30)
    rule = Rule(
        source_cluster=key.source_cluster,
        source_service=key.source_service,
        traffic_class=traffic_class.parse(key.class_id),
        destinations=[planned],
    )
    rulesets = {key.source_cluster: Ruleset(rules=[rule])}
    assert observed(rulesets).gaps_ms[key, to] == pytest.approx(observed().gaps_ms[key, to] - 30)


def test_what_is_not_observed_now_is_left_out():
    """A destination without calls has no time, rather than one of 0."""
    key, to = pair()
    found = observed(cluster=to, class_id=key.class_id, rps=0.0)
    assert (key, to) not in found.gaps_ms and (key, to) not in found.costs_ms


def _samples(gaps_ms, seed=1):
    """Samples of two destinations. The gap of one of them has these means, and noise of 3 ms."""
    key, chance = RuleKey("west", "web", "db GET /x"), random.Random(seed)
    return [
        Sample(100.0, 0.0, {}, {(key, "west"): chance.gauss(0, 3), (key, "east"): chance.gauss(g, 3)}, {}, {})
        for g in gaps_ms
    ]


def test_samples_from_before_a_jump_of_a_gap_are_dropped():
    """A delay of 150 ms appears after five windows; one window of it is not enough to tell."""
    found = _samples([0] * 5 + [-150] * 3)
    assert list(steady(found, 0.1)) == found[5:]
    assert list(steady(found[:6], 0.1)) == found[:6]


def test_noise_and_small_or_slow_changes_are_no_jumps():
    """At most one in a hundred of eight samples of noise; none within `delta` of the objective."""
    dropped = sum(len(steady(_samples([0] * 8, seed), 0.001)) < 8 for seed in range(1000))
    assert dropped <= 10
    drifting = _samples([-g for g in range(8)])
    assert list(steady(drifting, 0.1)) == drifting
