"""The operator's guardrail file: how the optimizer tracks it, and its constraints of a problem."""

import dataclasses
import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spillway_contracts import ContractError, topology
from spillway_contracts.guardrails import Denial, GuardrailFile, Guardrails, Pin
from spillway_optimizer.inputs.guardrails import changed, constraints_of
from spillway_optimizer.model import model
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.rulesets.verify import verify
from spillway_optimizer.sources import model_file

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
BACKEND = "backend GET /items/{id}"
ROUTES = [("frontend", BACKEND)]
WEST, EAST = RuleKey("west", "frontend", BACKEND), RuleKey("east", "frontend", BACKEND)


@pytest.fixture
def kept(tmp_path):
    """A guardrail file. `kept.write(text)` writes it with a new modification time.

    `kept.path` is its path, and `kept.states` the states to report to.
    """

    class Kept:
        path = tmp_path / "guardrails.yaml"
        states = States(logging.getLogger("test"))
        writes = 0

        def write(self, text: str) -> None:
            self.path.write_text(text)
            self.writes += 1
            os.utime(self.path, ns=(self.writes, self.writes))

    return Kept()


def test_a_changed_file_is_read_again_and_a_wrong_one_keeps_the_last_good(kept):
    """A saved change takes effect, and an error is logged and counted without effect.

    A missing file, or one with the same content in other words, changes nothing either.
    """
    kept.write("minimum_local_share: 1000")
    file = GuardrailFile(kept.path, TOPOLOGY)
    assert not _settled(file, kept.states) and file.current.minimum_local_share == 1000
    kept.write("minimum_local_share: 3000")
    assert _settled(file, kept.states) and file.current.minimum_local_share == 3000
    assert not _settled(file, kept.states)
    kept.write("minimum_local_shaer: 1")
    assert not _settled(file, kept.states) and file.current.minimum_local_share == 3000
    assert kept.states.counters["guardrails_wrong"] == 1
    kept.path.unlink()
    assert not _settled(file, kept.states) and file.current.minimum_local_share == 3000
    kept.write("# the same\nminimum_local_share: 3000")
    assert not _settled(file, kept.states)


def test_a_file_that_is_still_being_written_does_not_count(kept):
    """A file is truncated and then filled between two checks.

    Its partial content never takes effect, and is not reported as wrong.
    """
    kept.write("minimum_local_share: 1000")
    file = GuardrailFile(kept.path, TOPOLOGY)
    for half in ("", "minimum_local_sh", "minimum_local_share: 3"):
        kept.write(half)
        assert not changed(file, kept.states) and file.current.minimum_local_share == 1000
    kept.write("minimum_local_share: 3000")
    assert not changed(file, kept.states) and changed(file, kept.states)
    assert file.current.minimum_local_share == 3000 and not kept.states.counters["guardrails_wrong"]


def test_an_empty_file_lifts_nothing(kept):
    """An empty file may result from a full disk or a lost mount.

    An operator who wants no guardrails writes {}.
    """
    kept.write("drained_clusters: [east]")
    file = GuardrailFile(kept.path, TOPOLOGY)
    for empty in ("", "# drained_clusters: [east]"):
        kept.write(empty)
        assert not _settled(file, kept.states) and file.current.drained_clusters == ["east"]
    assert kept.states.counters["guardrails_wrong"] == 2
    kept.write("{}")
    assert _settled(file, kept.states) and file.current == Guardrails()


def _settled(file, states):
    """Checks the file twice. Returns whether it has changed at the second check."""
    changed(file, states)
    return changed(file, states)


def test_a_wrong_file_at_start_is_an_error_that_names_it(kept):
    """There is no last valid file to keep yet."""
    kept.write("utilisation_ceiling: 80")
    with pytest.raises(ContractError, match="guardrails.yaml: utilisation_ceiling"):
        GuardrailFile(kept.path, TOPOLOGY)
    assert GuardrailFile(None, TOPOLOGY).current == Guardrails()


def test_every_key_arrives_in_its_unit():
    """Parts of 10 000 become shares, and a denial becomes every pair that it names.

    A default adds no constraint.
    """
    c = constraints_of(
        Guardrails(
            maximum_shift=2000,
            minimum_local_share=1000,
            denied_destinations=[Denial(traffic_class=BACKEND, source_cluster="west", clusters=["east"])],
            pins=[
                Pin(
                    source_cluster="east",
                    source_service="frontend",
                    traffic_class=BACKEND,
                    destinations={"east": 10_000, "west": 0},
                )
            ],
            egress_budget_usd_per_hour=40.0,
            utilisation_ceiling=0.8,
            drained_clusters=["east"],
        ),
        TOPOLOGY,
        ROUTES,
        {WEST: {"west": 7500, "east": 2500}},
    )
    assert c.denied == {("west", BACKEND, "east")} and c.pinned == {EAST: {"east": 1.0}}
    assert (c.min_local_share, c.max_shift, c.egress_usd_per_hour, c.utilisation_ceiling) == (
        0.1,
        0.2,
        40,
        0.8,
    )
    assert c.drained == {"east"}
    # East has no rule, so relays serve local-first there.
    assert c.in_force == {WEST: {"west": 0.75, "east": 0.25}, EAST: {"east": 1.0}}
    nothing = constraints_of(Guardrails(), TOPOLOGY, ROUTES, {WEST: {"west": 10_000}})
    assert nothing == dataclasses.replace(nothing, denied=frozenset(), pinned={}, in_force={}, max_shift=1.0)


def test_a_whole_class_that_no_service_calls_is_noted():
    """The entry class has no rule. The class that frontend calls has one, and no note."""
    telemetry = model_file.read(GOLDEN / "3_model.json")
    entry = "gateway GET /items/{id}"
    whole = Guardrails(whole_classes=[BACKEND, entry])
    built = model.build(telemetry, TOPOLOGY, model_file.as_of(telemetry), guardrails=whole)
    assert built.problem.constraints.whole == {BACKEND}
    assert [note for note in built.notes if note.startswith("whole_classes")] == [
        f"whole_classes: no service calls {entry!r} now; it has no rule that could keep it whole"
    ]


def test_the_kill_switch_lifts_pins():
    """With the kill switch, the publisher publishes only local-first."""
    pin = Pin(
        source_cluster="east", source_service="frontend", traffic_class=BACKEND, destinations={"west": 10_000}
    )
    assert constraints_of(Guardrails(kill=True, pins=[pin]), TOPOLOGY, ROUTES).pinned == {}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    demand=st.floats(50, 900),
    shift=st.one_of(st.none(), st.integers(1, 10_000)),
    local=st.integers(0, 10_000),
    before=st.integers(0, 10_000),
    denied=st.sets(st.sampled_from([("west", "east"), ("east", "west"), ("west", "west")]), max_size=2),
    policy=st.sampled_from(["spillway", "local", "waterfall", "failover"]),
)
def test_what_is_routed_within_guardrails_verifies(chain, demand, shift, local, before, denied, policy):
    """For any guardrails, load and policy, the integer rules satisfy the guardrails.

    So a publisher has nothing to change. A route that denials close has no rule.
    """
    problem = chain({"west": demand, "east": 50.0})
    key, other = RuleKey("west", "web", "db GET /x"), RuleKey("east", "web", "db GET /x")
    guardrails = Guardrails(
        maximum_shift=shift,
        minimum_local_share=local,
        denied_destinations=[Denial(source_cluster=a, clusters=[b]) for a, b in sorted(denied)],
    )
    in_force = {
        key: {c: w for c, w in (("west", before), ("east", 10_000 - before)) if w},
        other: {"east": 10_000},
    }
    constraints = constraints_of(guardrails, TOPOLOGY, [("web", "db GET /x")], in_force)
    problem = dataclasses.replace(problem, constraints=constraints)
    best = project(problem, REGISTRY[policy]().route(problem))
    rules = integer_rules(problem, best)
    assert verify(problem, rules, best.evaluation) == []
    assert (key in rules) == ({("west", "east"), ("west", "west")} - denied != set())
    assert not any((k.source_cluster, c) in denied for k, weights in rules.items() for c in weights)
