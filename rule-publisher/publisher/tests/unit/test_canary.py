"""How the publisher begins and concludes trials: what is published, and what waits."""

import time
from types import SimpleNamespace

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Ruleset
from spillway_contracts import bases, names, slices
from spillway_contracts import ruleset as contract
from spillway_contracts.guardrails import CANARY_GRACE_S, CanaryPolicy, Denial, Guardrails, Pin
from spillway_publisher.bucket.checkpoints import weights
from spillway_publisher.commands import operator
from spillway_publisher.rules import canary, denials, freeze, trying
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide
from spillway_publisher.service.enforcing import Enforcing
from spillway_publisher.service.proposals import origin_problem
from spillway_publisher.trials import conclusions

NOW = time.time_ns()
SECOND = 10**9
CLUSTERS = ["island", "north", "south"]
BEFORE = {"north": {"north": 8000, "south": 2000}, "south": {"south": 10_000}}
AFTER = {"north": {"north": 6000, "south": 4000}, "south": {"south": 10_000}}
POLICY = Guardrails(canary=CanaryPolicy(clusters=["north"], share=2500, seconds=30, failed_share=0.01))


@pytest.fixture
def bucket(make):
    """The slices of version 7 with the weights BEFORE."""
    return slices.cut(make(BEFORE, now_ns=NOW), CLUSTERS, 7)


def context(topology, in_force, policy=POLICY, now_ns: int = NOW, **more) -> Context:
    return Context(topology, policy, in_force, now_ns, **more)


@pytest.fixture
def tried(topology, bucket, make):
    """Returns the slices of version 8, which tries AFTER beside BEFORE."""
    proposal = make(AFTER, now_ns=NOW)
    around = context(topology, bucket)
    whole = trying.begun(decide(proposal, around).ruleset, around, None)
    bases.stamp(whole, bucket, 8)
    return slices.cut(whole, CLUSTERS, 8)


def test_a_trial_leaves_every_weight_as_it_is_and_carries_the_proposal(topology, bucket, tried):
    """Its rules are those before, with the version of their last change, and its policy too.

    Beside them each slice has its rules on trial. It lives until relays end it by themselves.
    """
    whole = slices.join(tried.values())
    assert weights(whole) == weights(slices.join(bucket.values()))
    assert contract.check(whole, topology) == [] and contract.check(whole.canary.ruleset, topology) == []
    assert {rule.changed_version for rule in whole.rules} == {7}
    north, south = tried["north"].canary, tried["south"].canary
    assert {d.cluster: d.weight for d in north.ruleset.rules[0].destinations} == AFTER["north"]
    assert [rule.source_cluster for rule in south.ruleset.rules] == ["south"]
    assert {part.canary.ruleset.version for part in tried.values()} == {8}
    assert (list(north.clusters), north.share) == (["north"], 2500)
    assert north.until.ToNanoseconds() == NOW + (30 + CANARY_GRACE_S) * SECOND
    assert whole.expires_at.ToNanoseconds() >= north.until.ToNanoseconds()
    trial = canary.on(tried, CLUSTERS)
    assert (trial.version, trial.complete, trial.clusters) == (8, True, {"north"})
    assert trial.decided_at_ns == NOW + 30 * SECOND and {key[1] for key in trial.changed} == {"web"}


def test_guardrails_hold_for_the_rules_beside_a_trial_too(topology, bucket, make):
    """A pin, and a higher least share, reach all Envoys at once. Only the proposal is tried.

    The kill switch waits for no trial.
    """
    pin = Pin(
        source_cluster="south",
        source_service="web",
        traffic_class="shop GET /items/{id}",
        destinations={"north": 10_000},
    )
    policy = POLICY.model_copy(update={"pins": [pin], "minimum_local_share": 9000})
    around = context(topology, bucket, policy)
    whole = trying.begun(
        decide(make({"north": {"north": 9500, "south": 500}}, now_ns=NOW), around).ruleset, around, None
    )
    of = {key[0]: to for key, to in weights(whole).items()}
    assert of == {"north": {"north": 9000, "south": 1000}, "south": {"north": 10_000}}
    tried = {key[0]: to for key, to in weights(whole.canary.ruleset).items()}
    assert tried == {"north": {"north": 9500, "south": 500}, "south": {"north": 10_000}}
    killed = context(topology, bucket, POLICY.model_copy(update={"kill": True}))
    local = decide(make({"north": {"north": 10_000}}, now_ns=NOW), killed).ruleset
    assert trying.begun(local, killed, None) is None


def test_only_changes_of_weights_by_the_optimizer_are_tried(topology, bucket, make):
    """A renewal, an operator's ruleset, and a first ruleset are published for all at once.

    So are PAPA's steps, which PAPA judges, and everything without the guardrail.
    """
    for proposal, in_force, policy in (
        (make(BEFORE, now_ns=NOW), bucket, POLICY),
        (make(AFTER, now_ns=NOW, origin=ORIGIN_OPERATOR), bucket, POLICY),
        (make(AFTER, now_ns=NOW, origin=ORIGIN_PAPA, base_version=7), bucket, POLICY),
        (make(AFTER, now_ns=NOW), {}, POLICY),
        (make(AFTER, now_ns=NOW), {"north": bucket["north"]}, POLICY),
        (make(AFTER, now_ns=NOW), bucket, Guardrails()),
    ):
        around = context(topology, in_force, policy)
        assert trying.begun(decide(proposal, around).ruleset, around, None) is None


def test_what_a_proposal_says_of_a_trial_does_not_count(topology, bucket, make):
    """A canary in a proposal is left out. Only the publisher's subject may conclude a trial."""
    proposal = make(AFTER, now_ns=NOW)
    proposal.canary.share = 10_000
    assert not decide(proposal, context(topology, bucket, Guardrails())).ruleset.HasField("canary")
    proposal.concludes = 8
    subject = names.NATS_SUBJECT_PROPOSALS.format(origin="optimizer")
    assert "only spillway.proposals.operator may conclude a trial" in origin_problem(proposal, subject)


def test_during_a_trial_others_wait_and_operators_end_it(topology, tried, make):
    """The refusal says which version is on trial, and until when. The kill switch ends it too."""
    for proposal in (make(AFTER, now_ns=NOW), make(BEFORE, now_ns=NOW, origin=ORIGIN_PAPA, base_version=8)):
        decision = decide(proposal, context(topology, tried))
        assert (decision.ruleset, decision.refused_by) == (None, "trial")
        assert decision.reason.startswith("canary: version 8 is on trial until ")
    for proposal, policy in (
        (make(BEFORE, now_ns=NOW, origin=ORIGIN_OPERATOR), POLICY),
        (make({}, now_ns=NOW, origin=ORIGIN_OPERATOR, policy="kill"), Guardrails(kill=True)),
    ):
        around = context(topology, tried, policy)
        published = decide(proposal, around).ruleset
        assert trying.begun(published, around, None) is None and not published.HasField("canary")


def test_a_kept_trial_comes_into_force_by_its_proposer(topology, tried):
    """All clusters get what was tried, and no second trial begins. Its fencing token stays."""
    trial = canary.on(tried, CLUSTERS)
    trial.whole.fencing_token = 11
    later = NOW + 31 * SECOND
    proposal = conclusions.kept(trial, "fine", later)
    around = context(topology, tried, now_ns=later, fences={ORIGIN_OPTIMIZER: 12})
    decision = decide(proposal, around)
    assert decision.refused_by == "" and decision.reason == "the canary is kept: fine"
    assert trying.begun(decision.ruleset, around, None) is None
    bases.stamp(decision.ruleset, tried, 9)
    assert decision.ruleset.origin == ORIGIN_OPTIMIZER and decision.ruleset.concludes == 8
    assert weights(decision.ruleset) == weights(trial.whole.canary.ruleset)
    changed = {rule.source_cluster: rule.changed_version for rule in decision.ruleset.rules}
    assert changed == {"north": 9, "south": 7}


def test_a_trial_is_rolled_back_to_the_weights_that_all_others_kept(topology, bucket, tried, make):
    """The rollback is the operator's, so the optimizer does not try the same again at once."""
    trial, later = canary.on(tried, CLUSTERS), NOW + 5 * SECOND
    proposal = conclusions.rolled_back(trial, tried, POLICY, topology, "web/0 refused it", later)
    decision = decide(proposal, context(topology, tried, now_ns=later))
    assert decision.reason == "the canary is rolled back: web/0 refused it"
    assert weights(decision.ruleset) == weights(slices.join(bucket.values()))
    assert not decision.ruleset.HasField("canary")
    after = slices.cut(decision.ruleset, CLUSTERS, 9)
    again = decide(make(AFTER, now_ns=later), context(topology, after, now_ns=later))
    assert again.refused_by == "authority" and "a trial was rolled back" in again.reason


def test_a_rollback_holds_though_the_file_says_otherwise_and_after_it_was_renewed(topology, tried, make):
    """By a denial, and by a freeze that began and ended: the same would be tried again."""
    trial, later = canary.on(tried, CLUSTERS), NOW + 5 * SECOND
    free = POLICY.model_copy(update={"operator_hold": False})
    made = conclusions.rolled_back(trial, tried, free, topology, "web/0 refused it", later)
    parts = slices.cut(decide(made, context(topology, tried, now_ns=later, policy=free)).ruleset, CLUSTERS, 9)
    denied = free.model_copy(update={"denied_destinations": [Denial(clusters=["island"])]})
    frozen, soon = free.model_copy(update={"freeze": True}), later + 590 * SECOND
    for proposal, policy, at in (
        (denials.renewal(parts, denied, topology, later), denied, later),
        (freeze.renewal(parts, frozen, topology, {}, soon), frozen, soon),
    ):
        renewed = decide(proposal, context(topology, parts, now_ns=at, policy=policy)).ruleset
        after = slices.cut(renewed, CLUSTERS, 10)
        again = decide(make(AFTER, now_ns=at), context(topology, after, now_ns=at, policy=free))
        assert again.refused_by == "authority" and again.reason.startswith("a trial was rolled back")


def test_a_trial_is_concluded_once(topology, tried, make):
    """A second publisher's conclusion is refused, whatever it is, because nothing is on trial."""
    trial = canary.on(tried, CLUSTERS)
    after = slices.cut(make(BEFORE, now_ns=NOW), CLUSTERS, 9)
    for proposal in (
        conclusions.kept(trial, "", NOW),
        conclusions.rolled_back(trial, after, POLICY, topology, "", NOW),
    ):
        decision = decide(proposal, context(topology, after))
        assert decision.refused_by == "trial"
        assert decision.reason == "concludes: 8; must be the version that is on trial now"


def test_changed_denials_end_a_trial(topology, tried):
    """Denied destinations leave the weights that all others have, and nothing is on trial."""
    policy = POLICY.model_copy(
        update={"denied_destinations": [Denial(source_cluster="north", clusters=["south"])]}
    )
    renewal = denials.renewal(tried, policy, topology, NOW)
    renewal.origin = ORIGIN_OPERATOR  # as the service sends it during a trial
    published = decide(renewal, context(topology, tried, policy)).ruleset
    assert not published.HasField("canary")
    assert weights(published)["north", "web", "shop GET /items/{id}"] == {"north": 10_000}


def test_an_interrupted_trial_is_completed_as_it_began(topology, bucket, tried, make):
    """A crash after the first key: the trial keeps its end and its share, whatever the file says.

    A version that began without a trial is completed without one.
    """
    half = {**bucket, "island": tried["island"]}
    trial = canary.on(half, CLUSTERS)
    assert (trial.version, trial.complete) == (8, False)
    proposal = make(AFTER, now_ns=NOW)
    around = context(topology, half, Guardrails(), NOW + 3 * SECOND, resumed=True)
    whole = trying.begun(decide(proposal, around).ruleset, around, 8)
    assert (whole.canary.share, whole.canary.until) == (2500, tried["north"].canary.until)
    assert weights(whole) == weights(slices.join(bucket.values()))
    plain = {**bucket, "island": slices.cut(make(AFTER, now_ns=NOW), CLUSTERS, 8)["island"]}
    around = context(topology, plain, resumed=True)
    assert trying.begun(decide(proposal, around).ruleset, around, 8) is None


def test_a_trial_is_no_target_of_a_rollback(tried, make):
    """What is proposed from a version that was a trial has its rules, and nothing on trial."""
    proposal = operator.rollback(slices.join(tried.values()), 9, "test", 60, NOW)
    assert not proposal.HasField("canary") and weights(proposal) == weights(make(BEFORE))


def test_slices_of_a_trial_join_to_what_was_cut(tried):
    """Cutting and joining loses nothing of the ruleset on trial, also of clusters without rules."""
    whole = slices.join(tried.values())
    again = slices.join(slices.cut(whole, CLUSTERS, 8).values())
    assert again == whole and isinstance(whole, Ruleset)


LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}


@pytest.mark.parametrize("rules", [LOCAL, {}])
async def test_the_kill_switch_ends_a_trial_beside_local_first_rules(topology, make, rules):
    """Elected Envoys send calls away, although the rules of all others are local-first."""
    proposals = []

    class Jetstream:
        async def publish(self, _: str, data: bytes, **__: object) -> None:
            proposals.append(Ruleset.FromString(data))

    before = slices.cut(make(rules, now_ns=NOW), CLUSTERS, 7)
    around = context(topology, before)
    whole = trying.begun(decide(make(AFTER, now_ns=NOW), around).ruleset, around, None)
    parts = slices.cut(whole, CLUSTERS, 8)
    killed = SimpleNamespace(current=POLICY.model_copy(update={"kill": True}))
    await Enforcing(killed, topology, None, lambda: parts, lambda: None, None).enforce(Jetstream())
    assert [proposal.policy for proposal in proposals] == ["kill"]


def test_a_rollback_to_no_rules_holds_too(topology, make):
    """After the kill switch no rules are in force. The same trial does not begin again at once."""
    before = slices.cut(make({}, now_ns=NOW, origin=ORIGIN_OPERATOR), CLUSTERS, 7)
    around = context(topology, before)
    whole = trying.begun(decide(make(AFTER, now_ns=NOW), around).ruleset, around, None)
    parts = slices.cut(whole, CLUSTERS, 8)
    back = conclusions.rolled_back(canary.on(parts, CLUSTERS), parts, POLICY, topology, "x", NOW)
    decided = decide(back, context(topology, parts)).ruleset
    later = NOW + 2 * SECOND
    again = decide(
        make(AFTER, now_ns=later), context(topology, slices.cut(decided, CLUSTERS, 9), now_ns=later)
    )
    assert again.ruleset is None and again.reason.startswith("a trial was rolled back")
