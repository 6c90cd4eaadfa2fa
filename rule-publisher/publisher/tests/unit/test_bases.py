"""The version that a proposal starts from: partial proposals, and texts of refusals."""

import time

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Ruleset
from spillway_contracts import bases, slices, traffic_class
from spillway_contracts.guardrails import Guardrails
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide

HALF = {"north": {"north": 5000, "south": 5000}, "south": {"south": 10_000}}
OTHER = "shop POST /orders"


@pytest.fixture
def mesh(topology, make):
    """Publishes through the pure pipeline. `version` and `parts` are in force."""

    class Mesh:
        def __init__(self):
            self.version, self.parts = 100, {}

        def propose(self, proposal: Ruleset):
            context = Context(topology, Guardrails(operator_hold=False), self.parts, time.time_ns())
            decision = decide(proposal, context)
            if decision.ruleset:
                self.version += 1
                bases.stamp(decision.ruleset, self.parts, self.version)
                self.parts = slices.cut(decision.ruleset, [c.name for c in topology.clusters], self.version)
            return decision

        def weights(self, source="north"):
            (rule,) = self.parts[source].rules
            return bases.positive(rule)

        def changes(self):
            return {
                r.source_cluster: (r.changed_version, r.changed_by)
                for p in self.parts.values()
                for r in p.rules
            }

    return Mesh()


def part(make, north: int, base: int | None, **fields) -> Ruleset:
    """Returns a proposal as PAPA makes it, with north's rule alone."""
    proposal = make({"north": {"north": north, "south": 10_000 - north}}, origin=ORIGIN_PAPA, **fields)
    proposal.policy, proposal.partial = "", True
    if base is not None:
        proposal.base_version = base
    proposal.ClearField("input_window")
    return proposal


def test_every_rule_says_in_which_version_and_by_whom_it_was_changed_last(mesh, make):
    """A renewal with the same weights keeps the values.

    A change of one rule updates that rule alone.
    """
    mesh.propose(make(HALF))
    mesh.propose(make(HALF, base_version=101))
    assert set(mesh.changes().values()) == {(101, ORIGIN_OPTIMIZER)}
    assert mesh.propose(part(make, 5500, 102)).ruleset
    assert mesh.changes() == {"north": (103, ORIGIN_PAPA), "south": (101, ORIGIN_OPTIMIZER)}
    assert all(not r.base_version and not r.partial for r in mesh.parts.values())


def test_a_partial_proposal_leaves_all_else_as_it_is(mesh, make):
    """Other rules, policy, window, prediction and expiry stay, and classes are merged.

    The change belongs to its proposer.
    """
    first = make(HALF)
    first.predicted.mean_latency_ms = 7
    mesh.propose(first)
    step = part(make, 5500, 101)
    step.traffic_classes.append(traffic_class.parse(OTHER))
    step.expires_at.FromNanoseconds(first.expires_at.ToNanoseconds() + 10**12)
    whole = mesh.propose(step).ruleset
    assert (mesh.weights(), mesh.weights("south")) == ({"north": 5500, "south": 4500}, {"south": 10_000})
    assert (whole.policy, whole.input_window, whole.expires_at) == (
        "spillway",
        first.input_window,
        first.expires_at,
    )
    assert (whole.id, whole.origin, whole.predicted.mean_latency_ms) == (step.id, ORIGIN_PAPA, 7)
    assert [traffic_class.format_id(c) for c in whole.traffic_classes] == ["shop GET /items/{id}", OTHER]


def test_a_previous_publisher_refuses_a_partial_proposal(topology, make):
    """It does not know field 14.

    Without policy and window, it cannot take the rule for the whole mesh.
    """
    step = part(make, 5500, 101)
    step.ClearField("partial")
    decision = decide(step, Context(topology, Guardrails(), {}, time.time_ns()))
    assert decision.refused_by == "contract" and "policy: empty" in decision.reason


def test_what_somebody_else_has_changed_since_is_not_republished(mesh, make):
    """The optimizer read version 101, and PAPA changed north's rule in 102.

    The refusal names rule, version and origin. A proposal from 102 is published, and so is one from
    101 that leaves north as PAPA set it.
    """
    mesh.propose(make(HALF))
    mesh.propose(part(make, 5500, 101))
    late = mesh.propose(make(HALF, base_version=101))
    assert late.refused_by == "base" and mesh.weights()["north"] == 5500
    assert (
        "base_version: 101; the rule of 'web' in 'north' for 'shop GET /items/{id}' was changed "
        "in version 102 by ORIGIN_PAPA" in late.reason
    )
    papas = {"north": {"north": 5500, "south": 4500}, "south": {"south": 10_000}}
    assert mesh.propose(make(papas, base_version=101)).ruleset
    assert mesh.propose(make(HALF, base_version=102)).ruleset
    assert mesh.weights()["north"] == 5000


def test_papa_cannot_undo_the_optimizer(mesh, make):
    """A step from an old version is refused once the optimizer has changed or removed that rule.

    A change of another rule is no conflict.
    """
    mesh.propose(make(HALF))
    mesh.propose(make({**HALF, "south": {"south": 9000, "north": 1000}}, base_version=101))
    assert mesh.propose(part(make, 5500, 101)).ruleset and mesh.weights("south") == {
        "south": 9000,
        "north": 1000,
    }
    mesh.propose(make({"north": {"north": 8000, "south": 2000}}, base_version=103))
    late = mesh.propose(part(make, 6000, 103))
    assert "changed in version 104 by ORIGIN_OPTIMIZER" in late.reason
    mesh.propose(make({"south": {"south": 10_000}}, base_version=104))
    assert "is no longer in force" in mesh.propose(part(make, 6000, 105)).reason


def test_only_operators_and_the_previous_optimizer_propose_without_a_base(mesh, make):
    """PAPA of 0.1.0 republished the whole mesh, so it is refused while anything is in force."""
    assert (
        mesh.propose(part(make, 5500, None)).reason
        == "partial: true; must be false while no ruleset is in force"
    )
    mesh.propose(make(HALF))
    whole = make(HALF, origin=ORIGIN_PAPA)
    for proposal in (whole, part(make, 5500, None)):
        assert (
            "base_version: absent; must be the version in force that the proposer read; 101 is in force"
            in mesh.propose(proposal).reason
        )
    assert "base_version: 0; version 101 is in force" in mesh.propose(part(make, 5500, 0)).reason
    assert mesh.propose(make(HALF)).ruleset and mesh.propose(make(HALF, origin=ORIGIN_OPERATOR)).ruleset


@pytest.mark.parametrize("origin", [ORIGIN_OPTIMIZER, ORIGIN_OPERATOR])
def test_who_says_that_nothing_is_in_force_is_refused_while_anything_is(mesh, make, origin):
    """Base 0 is a version like others, on the wire too.

    It is accepted while nothing was published. Later the refusal names the version in force, and a
    proposal from that version is published. So is a proposal of 0.1.0, which has no base.
    """

    def sent(base: int) -> Ruleset:
        return Ruleset.FromString(make(HALF, origin=origin, base_version=base).SerializeToString())

    assert mesh.propose(sent(0)).ruleset
    refused = mesh.propose(sent(0))
    assert refused.refused_by == "base"
    assert refused.reason == "base_version: 0; version 101 is in force: read it and propose again"
    assert mesh.propose(sent(101)).ruleset and mesh.propose(make(HALF, origin=origin)).ruleset
    for part in mesh.parts.values():  # relays hold an expired ruleset
        part.expires_at.FromNanoseconds(time.time_ns() - 10**9)
    assert "version 103 is in force" in mesh.propose(sent(0)).reason


def test_an_operator_is_refused_by_another_operators_change_only(mesh, make):
    """A rollback outranks what optimizer and PAPA have changed since its base version."""
    mesh.propose(make(HALF))
    mesh.propose(part(make, 5500, 101))
    assert mesh.propose(make({"north": {"north": 10_000}}, origin=ORIGIN_OPERATOR, base_version=101)).ruleset
    assert "by ORIGIN_OPERATOR" in mesh.propose(make(HALF, origin=ORIGIN_OPERATOR, base_version=102)).reason


def test_what_the_previous_publisher_put_in_force_counts_as_changed_in_its_version(mesh, make):
    """Rules of the previous publisher do not say when they changed."""
    old = make(HALF, origin=ORIGIN_PAPA, version=101)
    mesh.parts, mesh.version = slices.cut(old, ["north", "south", "island"], 101), 101
    other = {**HALF, "north": {"north": 9000, "south": 1000}}
    assert "changed in version 101 by ORIGIN_PAPA" in mesh.propose(make(other, base_version=100)).reason
    assert mesh.propose(make(other, base_version=101)).ruleset
