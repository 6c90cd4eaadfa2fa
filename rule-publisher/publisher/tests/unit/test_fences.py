"""Fencing tokens: which are plausible, what a published version adds, what a reset forgets."""

import time

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Ruleset
from spillway_contracts import hold, names
from spillway_contracts.guardrails import Guardrails
from spillway_publisher.commands.operator import reset_fences
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.fences import Fences, largest, reset
from spillway_publisher.rules.guardrails import decide
from spillway_publisher.service.proposals import origin_problem

HOLD_S = names.VALUE_HOLD_SECONDS
SPREAD = {"north": {"north": 4000, "south": 6000}}
OPERATOR = names.NATS_SUBJECT_PROPOSALS.format(origin="operator")


@pytest.mark.parametrize("token", [2**63, 2**53, 10**18])
def test_a_token_that_no_lease_gave_is_refused_and_not_remembered(token, topology, make):
    """Neither the check of a proposal nor the bucket's history takes it as the newest token."""
    now = time.time_ns()
    decision = decide(make(SPREAD, fencing_token=token), Context(topology, Guardrails(), {}, now))
    assert decision.refused_by == "authority"
    assert f"fencing_token: {token}; must be at most" in decision.reason
    assert f"at most {largest(now)}: a lease's token" in decision.reason
    fences = Fences()
    fences.read(Ruleset(version=1, origin=ORIGIN_OPTIMIZER, fencing_token=token), now)
    assert fences.newest() == {}


def test_a_token_of_a_clock_that_is_a_little_ahead_counts(topology, make):
    """Redis and the publisher have separate clocks."""
    now = time.time_ns()
    ahead = now // 1000 + names.VALUE_FENCING_TOKEN_AHEAD_US // 2
    assert decide(make(SPREAD, fencing_token=ahead), Context(topology, Guardrails(), {}, now)).ruleset


def test_a_reset_forgets_the_tokens_before_it_and_no_other_origins():
    """The history may be read in parts and repeatedly: a version counts once.

    Tokens after the reset count.
    """
    fences, now = Fences(), time.time_ns()
    history = [
        Ruleset(version=1, origin=ORIGIN_OPTIMIZER, fencing_token=90),
        Ruleset(version=2, origin=ORIGIN_PAPA, fencing_token=80),
        Ruleset(version=3, origin=ORIGIN_OPTIMIZER, reset_fences=[ORIGIN_OPTIMIZER]),
        Ruleset(version=4, origin=ORIGIN_OPTIMIZER, fencing_token=20),
    ]
    for ruleset in history[:3] + history:
        fences.read(ruleset, now)
    assert fences.newest() == {ORIGIN_OPTIMIZER: 20, ORIGIN_PAPA: 80}
    assert (fences.reset_in(ORIGIN_OPTIMIZER), fences.reset_in(ORIGIN_PAPA)) == (3, 0)


def test_a_reset_changes_no_rule_no_expiry_and_holds_nobody_off(topology, make):
    """It publishes what is in force, of its own proposer, with the operator's id and reason."""
    in_force, now = make(SPREAD, fencing_token=7, version=5), time.time_ns()
    asked = reset_fences(["optimizer"], "a token from nowhere", now)
    context = Context(topology, Guardrails(), {"north": in_force}, now, fences={ORIGIN_OPTIMIZER: 10**15})
    decision = decide(reset(asked, context.in_force, context.policy, topology, now), context)
    assert decision.reason == "fencing tokens of optimizer reset: a token from nowhere"
    assert decision.ruleset.rules == in_force.rules and decision.ruleset.expires_at == in_force.expires_at
    assert (decision.ruleset.id, decision.ruleset.origin) == (asked.id, ORIGIN_OPTIMIZER)
    assert list(decision.ruleset.reset_fences) == [ORIGIN_OPTIMIZER] and not decision.ruleset.fencing_token


@pytest.mark.parametrize("north_s", [300, HOLD_S * 5 // 8])
@pytest.mark.parametrize("south_s", [-60, 300])
def test_a_reset_in_an_outage_changes_no_requests_way(topology, make, north_s, south_s):
    """During an outage rulesets have usually expired; one cluster's expiry is enough.

    The rules get the weights by which relays hold them, and no proposer is locked out.
    """
    now, split = time.time_ns(), {"north": 4000, "south": 6000}
    north = make({"north": split}, now_ns=now - (north_s + 120) * 10**9, version=5)
    south = make({"south": split}, now_ns=now - (south_s + 120) * 10**9, version=6)
    asked = reset_fences(["optimizer"], "a token from nowhere", now)
    context = Context(topology, Guardrails(maximum_shift=1), {"north": north, "south": south}, now)
    made = decide(reset(asked, context.in_force, context.policy, topology, now), context).ruleset
    kept = hold.kept_steps(north_s * 1000, HOLD_S * 1000, "north", "web")
    assert {r.source_cluster: {d.cluster: d.weight for d in r.destinations} for r in made.rules} == {
        "north": hold.decayed(split, "north", kept),
        "south": split,
    }
    assert made.origin == ORIGIN_OPTIMIZER and now < made.expires_at.ToNanoseconds() <= now + 120 * 10**9


def test_a_reset_when_nothing_is_held_any_more_has_no_rules(topology, make):
    """Relays serve local-first by then, so restoring the rules would move requests."""
    now = time.time_ns()
    released = make(SPREAD, now_ns=now - (HOLD_S + 120) * 10**9, version=5)
    asked = reset_fences(["optimizer"], "x", now)
    context = Context(topology, Guardrails(), {"north": released}, now)
    made = decide(reset(asked, context.in_force, context.policy, topology, now), context).ruleset
    assert (list(made.rules), made.origin) == ([], ORIGIN_OPERATOR)


def test_only_the_operator_resets(make):
    """The subject of another proposer may not ask for a reset, whatever origin it claims."""
    asked = reset_fences(["optimizer"], "x", time.time_ns())
    assert origin_problem(asked, OPERATOR) is None
    asked.origin = ORIGIN_OPTIMIZER
    subject = names.NATS_SUBJECT_PROPOSALS.format(origin="optimizer")
    assert "only spillway.proposals.operator may ask for it" in origin_problem(asked, subject)
    wrong = Ruleset(origin=ORIGIN_OPERATOR, reset_fences=[9])
    assert "reset_fences: 9; must be among ORIGIN_OPTIMIZER" in origin_problem(wrong, OPERATOR)
