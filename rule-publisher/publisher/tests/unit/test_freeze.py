"""What the publisher publishes while the weights in force are frozen."""

import time

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA
from spillway_contracts import names, slices
from spillway_contracts.guardrails import Denial, Guardrails, Pin
from spillway_publisher.rules import denials, freeze
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide

CLASS = "shop GET /items/{id}"
NOW = time.time_ns()
SECOND = 10**9
SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}


@pytest.fixture
def frozen(topology, make):
    """frozen(proposal, at=..., rules=..., resumed=..., **policy): decides with `rules` in force."""

    def decided(proposal, at: int = NOW, rules=None, resumed: bool = False, **policy):
        clusters = [c.name for c in topology.clusters]
        parts = slices.cut(make(rules or SPREAD, now_ns=NOW), clusters, 7) if rules != {} else {}
        return decide(proposal, Context(topology, Guardrails(freeze=True, **policy), parts, at, resumed))

    return decided


@pytest.mark.parametrize(
    "rules",
    [
        {"north": {"north": 4100, "south": 5900}, "south": {"south": 10_000}},
        {"north": {"north": 4000, "south": 6000}, "south": {"north": 1, "south": 9999}},
        {"south": {"south": 10_000}},  # the other rule becomes local-first
        {},
    ],
)
@pytest.mark.parametrize("origin", ["optimizer", "papa"])
def test_a_change_of_any_weight_is_refused_and_named(frozen, make, rules, origin):
    """It may come from the optimizer or from PAPA, and may leave a rule out."""
    proposal = make(rules, now_ns=NOW)
    if origin == "papa":
        proposal.origin, proposal.base_version = ORIGIN_PAPA, 7
    decision = frozen(proposal)
    assert (decision.ruleset, decision.refused_by) == (None, "freeze")
    assert decision.reason.startswith(
        "freeze: true: the weights in force stay; the proposal changes those of 'web'"
    )


def test_what_keeps_the_weights_passes(frozen, make):
    """A renewal is published as it is, so rules do not expire. A local rule may be left out."""
    for rules in (SPREAD, {"north": SPREAD["north"]}):
        renewal = make(rules, now_ns=NOW)
        assert frozen(renewal).ruleset == renewal


def test_an_expired_ruleset_is_renewed_with_its_weights_or_those_that_relays_hold(frozen, make, topology):
    """After an outage, relays hold other weights than the ruleset says: both pass."""
    later = NOW + names.VALUE_HOLD_SECONDS * SECOND // 2
    parts = slices.cut(make(SPREAD, now_ns=NOW), ["north", "south", "island"], 7)
    held = denials.renewed(parts, Guardrails(), topology, later)
    held_now = {r.source_cluster: {d.cluster: d.weight for d in r.destinations} for r in held.rules}
    assert held_now["north"] != SPREAD["north"]
    for rules in (SPREAD, held_now):
        assert frozen(make(rules, now_ns=later), later).ruleset is not None
    assert frozen(make({"north": {"north": 10_000}}, now_ns=later), later).refused_by == "freeze"


def test_denials_leave_and_pins_hold_although_weights_are_frozen(frozen, make, topology):
    """What the denials' own proposal changes passes, and nothing else. A pin is set as always."""
    denied = {"denied_destinations": [Denial(clusters=["south"])]}
    parts = slices.cut(make(SPREAD, now_ns=NOW), ["north", "south", "island"], 7)
    renewal = denials.renewal(parts, Guardrails(**denied), topology, NOW)
    assert renewal is not None and frozen(renewal, **denied).ruleset is not None
    pin = Pin(
        source_cluster="north", source_service="web", traffic_class=CLASS, destinations={"north": 10_000}
    )
    decision = frozen(make(SPREAD, now_ns=NOW), pins=[pin])
    assert {d.cluster: d.weight for d in decision.ruleset.rules[0].destinations} == {"north": 10_000}


def test_operators_and_interrupted_versions_pass(frozen, make):
    """An operator may change weights. A version that some clusters have already is completed."""
    changed = {"north": {"north": 10_000}}
    operators = make(changed, now_ns=NOW, origin=ORIGIN_OPERATOR)
    assert frozen(operators).ruleset is not None
    assert frozen(make(changed, now_ns=NOW), resumed=True).ruleset is not None


def test_what_an_act_freezes_is_renewed_before_it_expires(topology, make):
    """Nobody else does, because the optimizer does not see acts: the weights would give way.

    A new leader whose proposals were refused meanwhile does not keep the renewal out.
    """
    clusters = [c.name for c in topology.clusters]
    parts = slices.cut(make(SPREAD, now_ns=NOW), clusters, 7)
    policy = Guardrails(freeze=True)
    soon = min(part.expires_at.ToNanoseconds() for part in parts.values()) - 20 * SECOND
    fences = {ORIGIN_OPTIMIZER: NOW // 1000}

    def renewed(at: int, of=policy, in_force=parts):
        return freeze.renewal(in_force, of, topology, fences, at)

    assert renewed(soon, Guardrails()) is None and renewed(soon - 60 * SECOND) is None
    assert renewed(soon, in_force={}) is None
    for at in (soon, soon + 30 * SECOND):  # the second one comes after the expiry
        proposal = renewed(at)
        context = Context(topology, policy, parts, at, fences=fences)
        published = decide(proposal, context).ruleset
        assert published.rules == proposal.rules and published.id.startswith("held-")
        assert published.expires_at.ToNanoseconds() == at + freeze.LIFETIME_S * SECOND
        assert renewed(at, in_force=slices.cut(published, clusters, 8)) is None


def test_without_rules_in_force_local_first_stays(frozen, make):
    """Nothing was published yet: a rule that sends requests away is a change."""
    assert frozen(make(SPREAD, now_ns=NOW), rules={}).refused_by == "freeze"
    assert frozen(make({"north": {"north": 10_000}}, now_ns=NOW), rules={}).ruleset is not None
