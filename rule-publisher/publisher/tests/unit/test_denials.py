"""The guardrail file's denials in every ruleset, and the effect of changing only the file."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, Denial, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import denials as contract
from spillway_contracts import hold, slices
from spillway_contracts.guardrails import Denial as Rule
from spillway_contracts.guardrails import Guardrails
from spillway_contracts.names import VALUE_HOLD_SECONDS
from spillway_publisher.commands import operator
from spillway_publisher.rules import denials, weights
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide

CLASS = "shop GET /items/{id}"
CLUSTERS = ["island", "north", "south"]
NOW = time.time_ns()
HOLD_S = VALUE_HOLD_SECONDS
ITEMS_NOT_SOUTH = {"denied_destinations": [Rule(traffic_class=CLASS, clusters=["south"])]}


def rows(of: list[Denial]) -> list[tuple[str, str, list[str]]]:
    return [(*contract.key(denial), list(denial.clusters)) for denial in of]


@pytest.fixture
def ask(topology):
    def decided(proposal: Ruleset, **policy):
        return decide(proposal, Context(topology, Guardrails(**policy), {}, NOW))

    return decided


def test_denials_are_merged_per_source_and_class_and_in_order():
    """No source means every cluster and no class means every class.

    Overlapping denials become one.
    """
    policy = Guardrails(
        denied_destinations=[
            Rule(traffic_class=CLASS, clusters=["south"]),
            Rule(traffic_class=CLASS, source_cluster="north", clusters=["island", "south"]),
            Rule(source_cluster="south", clusters=["island"]),
        ]
    )
    assert rows(denials.of(policy, CLUSTERS)) == [
        ("island", CLASS, ["south"]),
        ("north", CLASS, ["island", "south"]),
        ("south", "", ["island"]),
        ("south", CLASS, ["south"]),
    ]


names = st.sampled_from(CLUSTERS)
rules = st.builds(
    Rule,
    traffic_class=st.none() | st.sampled_from([CLASS, "shop POST /items"]),
    source_cluster=st.none() | names,
    clusters=st.lists(names, min_size=1, max_size=4),
)


@given(st.lists(rules, max_size=8))
def test_denials_keep_the_contract_and_deny_what_the_file_denies(listed):
    """Whatever the file lists, the message passes the contract.

    For each class, source and destination it denies exactly what the file denies.
    """
    policy = Guardrails(denied_destinations=listed)
    found = denials.of(policy, CLUSTERS)
    assert contract.check(found, CLUSTERS) == []
    for source in CLUSTERS:
        for cluster in CLUSTERS:
            denied = any(s == source and c in ("", CLASS) and cluster in to for s, c, to in rows(found))
            assert denied == policy.denies(source, CLASS, cluster)


def test_a_published_ruleset_says_the_files_denials_whatever_the_proposal_says(ask, make):
    """A proposer can neither remove nor add a denial.

    A ruleset without rules has the denials too.
    """
    for proposal in (make({"north": {"north": 10_000}}, now_ns=NOW), make({}, now_ns=NOW, policy="kill")):
        proposal.denials.add(source_cluster="north", clusters=["island"])
        decision = ask(proposal, kill=proposal.policy == "kill", **ITEMS_NOT_SOUTH)
        assert rows(decision.ruleset.denials) == [(c, CLASS, ["south"]) for c in CLUSTERS]
        assert not ask(proposal).ruleset.denials


def test_slices_have_their_own_denials_and_join_again(make):
    """A relay gets the denials that bind its own cluster's requests."""
    whole = make({"north": {"north": 10_000}})
    whole.denials.extend(denials.of(Guardrails(**ITEMS_NOT_SOUTH), CLUSTERS))
    parts = slices.cut(whole, CLUSTERS, 3)
    assert {c: rows(p.denials) for c, p in parts.items()} == {c: [(c, CLASS, ["south"])] for c in CLUSTERS}
    assert slices.join(parts.values()).denials == whole.denials


def test_a_rollback_says_todays_denials(ask, make):
    """The denials of the old version may name a cluster that no longer exists."""
    old = make({"north": {"north": 10_000}}, version=3)
    old.denials.add(source_cluster="atlantis", clusters=["atlantis"])
    decision = ask(operator.rollback(old, 5, "slow", 60, NOW), **ITEMS_NOT_SOUTH)
    assert rows(decision.ruleset.denials) == [(c, CLASS, ["south"]) for c in CLUSTERS]


@pytest.fixture
def renew(topology):
    """renew(in_force or None, now=..., **policy) -> the proposal, and the decision about it."""

    def renewed(in_force: Ruleset | None, now: int = NOW, **policy):
        parts = slices.cut(in_force, CLUSTERS, in_force.version) if in_force else {}
        guardrails = Guardrails(**policy)
        proposal = denials.renewal(parts, guardrails, topology, now)
        return proposal, proposal and decide(proposal, Context(topology, guardrails, parts, now))

    return renewed


def test_a_new_denial_is_proposed_with_what_is_in_force_within_it(renew, make):
    """The denied share goes to the rule's other destinations.

    Proposer and expiry stay, so the proposal neither locks out the optimizer nor renews a ruleset.
    """
    old = make({"north": {"north": 2000, "south": 6000, "island": 2000}}, now_ns=NOW - 10**9, version=4)
    proposal, decision = renew(old, **ITEMS_NOT_SOUTH)
    (rule,) = decision.ruleset.rules
    assert {d.cluster: d.weight for d in rule.destinations} == {"north": 5000, "island": 5000}
    assert rows(decision.ruleset.denials) == [(c, CLASS, ["south"]) for c in CLUSTERS]
    assert (proposal.origin, proposal.expires_at) == (ORIGIN_OPTIMIZER, old.expires_at)


def test_a_rule_that_has_nowhere_left_is_left_out(renew, make):
    """Otherwise this rule would cause the whole proposal to be refused."""
    old = make({"north": {"south": 10_000}, "south": {"north": 10_000}}, now_ns=NOW - 10**9, version=4)
    _, decision = renew(old, **ITEMS_NOT_SOUTH)
    assert [rule.source_cluster for rule in decision.ruleset.rules] == ["south"]


@pytest.mark.parametrize("state", ["nothing published", "held no longer"])
def test_denials_without_a_ruleset_in_force_are_proposed_alone(renew, make, state):
    """Relays then serve local-first within the denials.

    The operator's hold does not apply, because the ruleset has no rules.
    """
    old = make({"north": {"south": 10_000}}, now_ns=NOW - 10**9, version=4)
    when = NOW if state == "nothing published" else NOW + (HOLD_S + 120) * 10**9
    _, decision = renew(None if state == "nothing published" else old, when, **ITEMS_NOT_SOUTH)
    assert (decision.ruleset.origin, len(decision.ruleset.rules)) == (ORIGIN_OPERATOR, 0)
    assert decision.ruleset.expires_at.ToNanoseconds() > when
    assert len(decision.ruleset.denials) == len(CLUSTERS)


@pytest.mark.parametrize("age_s", [300, HOLD_S * 5 // 8])
def test_a_denial_during_an_outage_keeps_the_rules_as_relays_hold_them(renew, make, age_s):
    """Shares that are not denied must not return home at once.

    The proposal is the operator's, because the last leader does not decide about denials.
    """
    old = make({"north": {"north": 2000, "south": 6000, "island": 2000}}, now_ns=NOW - 120 * 10**9, version=4)
    when = NOW + age_s * 10**9
    kept = hold.kept_steps(age_s * 1000, HOLD_S * 1000, "north", "web")
    held = hold.decayed({"north": 2000, "south": 6000, "island": 2000}, "north", kept)
    del held["south"]
    _, decision = renew(old, when, maximum_shift=1, **ITEMS_NOT_SOUTH)
    (rule,) = decision.ruleset.rules
    assert {d.cluster: d.weight for d in rule.destinations} == weights.scaled(held)
    assert decision.ruleset.origin == ORIGIN_OPERATOR
    assert decision.ruleset.expires_at.ToNanoseconds() == when + denials.LIFETIME_S * 10**9


def test_nothing_is_proposed_when_the_denials_are_in_force(renew, make):
    """Other changes of the file wait for the next proposal. A lifted denial does not wait."""
    old = make({"north": {"north": 10_000}}, now_ns=NOW - 10**9, version=4)
    assert renew(old, minimum_local_share=100)[0] is None
    assert renew(None)[0] is None
    _, decision = renew(old, **ITEMS_NOT_SOUTH)
    decision.ruleset.version = 5
    assert renew(decision.ruleset, **ITEMS_NOT_SOUTH)[0] is None
    assert not renew(decision.ruleset)[1].ruleset.denials


def test_no_topology_no_denials():
    """Tests judge hostile proposals with such a topology, which must not raise."""
    assert denials.of(Guardrails(**ITEMS_NOT_SOUTH), [c.name for c in Topology().clusters]) == []
