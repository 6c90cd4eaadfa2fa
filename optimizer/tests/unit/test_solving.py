"""One solve with its surroundings in memory: what is published, and the contents of its row."""

import dataclasses
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from nats.errors import MaxPayloadError
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.rules import TOTAL, of_ruleset
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.decide import Action, decide
from spillway_optimizer.rulesets.integer_weights import Loss
from spillway_optimizer.service.live import LiveMesh
from spillway_optimizer.solving import application_result, solving
from spillway_optimizer.solving.solving import Solving
from spillway_optimizer.solving.triggers import Trigger
from spillway_optimizer.workers.solved import Solved

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY = topology.load(ROOT / "contracts" / "golden" / "topology.yaml")
CLUSTERS = tuple(cluster.name for cluster in TOPOLOGY.clusters)
INPUTS = telemetry.from_document(json.loads((Path(__file__).parent / "data" / "model.json").read_text()))
NOW = 1767225631.0


class _Redis:
    async def mget(self, keys):
        return [None for _ in keys]  # no rules are in force


class _Proposals:
    def __init__(self):
        self.sent = []

    async def publish(self, ruleset):
        self.sent.append(ruleset)


class _History:
    def __init__(self):
        self.rows = []

    def add(self, table, row):
        assert table == "solves"
        self.rows.append(row)


def _following(policy, router):
    ignored = {"forget_all_but": lambda _: None, "fall_back": lambda *_: None}
    return SimpleNamespace(name=policy, router=lambda *_: router, **ignored)


@pytest.fixture
def world(tmp_path, settings):
    """Returns a function that runs one solve: world(route=..., guardrails=..., told=...).

    It returns the proposals sent, the row, and the counters.
    """

    async def solve(route=None, guardrails="", inputs=INPUTS, held=True, policy="spillway"):
        (tmp_path / "guardrails.yaml").write_text(guardrails)
        proposals, history, states = _Proposals(), _History(), States(logging.getLogger("test"))
        lease = SimpleNamespace(held=lambda: held, fencing_token=7)
        file = GuardrailFile(tmp_path / "guardrails.yaml", TOPOLOGY)
        mesh = LiveMesh(_Redis(), CLUSTERS, history, proposals, lease, 10.0, states)
        solving = Solving(settings(policy=policy), TOPOLOGY, mesh, file, states)
        router = SimpleNamespace(route=route) if route else REGISTRY[policy]()
        following = _following(policy, router)
        assert await solving.run(NOW, Trigger("start"), inputs, following) is None
        (row,) = history.rows
        return proposals.sent, row, states.counters

    return solve


async def test_a_sound_solve_is_proposed_under_the_leases_token(world):
    """One ruleset is sent. Its row has the same id and window, every cost term, and the trigger."""
    (ruleset,), row, _ = await world()
    assert ruleset.fencing_token == 7
    assert (row["outcome"], row["trigger"], row["ruleset_id"]) == ("proposed", "start", ruleset.id)
    assert row["input_window"] == ruleset.input_window.id
    terms = sum(row[f"{term}_usd_per_hour"] for term in ("compute", "network", "egress", "failure"))
    assert terms == pytest.approx(row["objective_usd_per_hour"]) and terms > 0
    assert row["bound_usd_per_hour"] <= row["solution_usd_per_hour"] * (1 + 1e-9)


async def test_a_policy_that_breaks_a_constraint_publishes_nothing(world, monkeypatch):
    """If extraction were wrong, verification would still stop the ruleset.

    Nothing is sent, and the row names rule and value.
    """

    def wrong(problem, solution):
        rules = dict(REAL(problem, solution))
        key = next(k for k in rules if k.source_cluster == "west")
        return {**rules, key: {"east": TOTAL}}

    REAL = application_result.integer_rules
    monkeypatch.setattr(application_result, "integer_rules", wrong)
    sent, row, counters = await world(guardrails="minimum_local_share: 4000")
    assert sent == [] and row["outcome"] == "refused" and counters["refused"] == 1
    assert "0 of 10000 stay local; minimum_local_share is 4000" in row["reason"]


async def test_a_refused_solve_ends_no_rules_that_are_sound(lasting):
    """After any failed solve, the last proposal is renewed when due, under its own policy's name.

    The row says renewed, and its notes contain the refusal.
    """
    first = await lasting.solve(NOW)
    assert (await lasting.solve(NOW + 16, wrong=True))["outcome"] == "renewed"
    row = await lasting.solve(NOW + 32, wrong=True, policy="local")
    assert row["outcome"] == "renewed" and any(n.startswith("refused: ") for n in row["notes"])
    assert any("sum to 10000" in note for note in row["notes"])
    assert (await lasting.solve(NOW + 33, wrong=True))["outcome"] == "refused"
    sent = lasting.proposals.sent
    assert len(sent) == 3 and {r.policy for r in sent} == {"spillway"} and first["outcome"] == "proposed"
    assert of_ruleset(sent[0]) == of_ruleset(sent[2])


async def test_a_token_taken_midway_publishes_nothing(lasting):
    """The lease was lost and acquired again during the solve.

    Another process may have led in between, so the decision is stale. The next solve starts afresh
    under the new token.
    """
    row = await lasting.solve(NOW, midway=lambda: setattr(lasting.lease, "fencing_token", 8))
    assert row["outcome"] == "refused" and lasting.proposals.sent == []
    assert (await lasting.solve(NOW + 1))["outcome"] == "proposed"
    assert lasting.proposals.sent[0].fencing_token == 8
    lasting.lease.fencing_token = 9
    assert (await lasting.solve(NOW + 2))["reason"] == "policy 'spillway' after None"


async def test_a_ruleset_that_nats_does_not_take_is_named(lasting):
    """A ruleset that is too large does not count as a server that is away. The row says so."""

    async def publish(ruleset):
        raise MaxPayloadError

    lasting.proposals.publish = publish
    row = await lasting.solve(NOW)
    assert row["outcome"] == "refused" and "more than NATS takes; raise its max_payload" in row["reason"]


async def test_input_that_breaks_the_model_is_a_refused_row(lasting, monkeypatch):
    """An error before there is a problem is handled like one after it."""
    monkeypatch.setattr(solving, "build", lambda *_: 1 / 0)
    row = await lasting.solve(NOW)
    assert (
        row["outcome"] == "refused" and row["reason"] == "internal error: ZeroDivisionError: division by zero"
    )


class _Lasting:
    """One leader over several solves."""

    def __init__(self, settings, monkeypatch):
        self.proposals, self.history, self.monkeypatch = _Proposals(), _History(), monkeypatch
        self.lease = SimpleNamespace(held=lambda: True, fencing_token=7)
        states = States(logging.getLogger("test"))
        mesh = LiveMesh(_Redis(), CLUSTERS, self.history, self.proposals, self.lease, 10.0, states)
        self.solving = Solving(settings(), TOPOLOGY, mesh, GuardrailFile(None, TOPOLOGY), states)

    async def solve(self, now, wrong=False, policy="spillway", midway=None):
        def route(problem):
            if midway:
                midway()
            return REGISTRY[policy]().route(problem)

        with self.monkeypatch.context() as patched:
            if wrong:
                patched.setattr(application_result, "decide", _wrong)
            following = _following(policy, SimpleNamespace(route=route))
            await self.solving.run(now, Trigger("period"), _inputs(now), following)
        return self.history.rows[-1]


def _wrong(*args, **keys):
    """Decides on rules whose weights have a wrong sum."""
    decision = decide(*args, **keys)
    broken = {key: {to: w - 1 for to, w in weights.items()} for key, weights in decision.rules.items()}
    return dataclasses.replace(decision, action=Action.PROPOSE, rules=broken)


def _inputs(at):
    def moved(boards):
        return {
            c: {k: dataclasses.replace(entry, at=at) for k, entry in board.items()}
            for c, board in boards.items()
        }

    return dataclasses.replace(INPUTS, demand=moved(INPUTS.demand), load=moved(INPUTS.load))


@pytest.fixture
def lasting(settings, monkeypatch):
    return _Lasting(settings, monkeypatch)


async def test_a_solver_that_fails_is_a_refused_row_and_not_the_end(world):
    """An unexpected exception is counted, and the row names it. Nothing is published."""

    def fails(problem):
        raise ZeroDivisionError("of this input only")

    sent, row, counters = await world(route=fails)
    assert sent == [] and row["outcome"] == "refused" and counters["internal_errors"] == 1
    assert row["reason"] == "internal error: ZeroDivisionError: of this input only"


async def test_a_leader_that_lost_its_lease_while_solving_publishes_nothing(world):
    """The solve took longer than the lease lasted."""
    sent, row, _ = await world(held=False)
    assert sent == [] and "the lease ran out while solving" in row["reason"]


async def test_with_the_kill_switch_nothing_is_proposed(world):
    """The solve runs and has a row, but nothing is sent."""
    sent, row, _ = await world(guardrails="kill: true")
    assert sent == [] and (row["outcome"], row["ruleset_id"]) == ("unchanged", "")
    assert "kill: true" in row["reason"] and row["objective_usd_per_hour"] > 0


async def test_while_weights_are_frozen_nothing_new_is_proposed(world):
    """Without rules in force there is nothing to renew. The row still has the solver's result."""
    sent, row, _ = await world(guardrails="freeze: true")
    assert sent == [] and (row["outcome"], row["ruleset_id"]) == ("unchanged", "")
    assert "freeze: true" in row["reason"] and row["solution_usd_per_hour"] > 0


async def test_the_expiry_is_within_the_guardrails(world):
    """The expiry is already limited as the publisher would limit it."""
    (ruleset,), _, _ = await world(guardrails="maximum_expiry_seconds: 30")
    assert ruleset.expires_at.ToMilliseconds() - ruleset.created_at.ToMilliseconds() == 30_000


async def test_a_limit_that_cannot_be_kept_is_a_note_and_no_refusal(world):
    """West's entry alone exceeds the ceiling.

    The least bad rules are sent, and the row says what is exceeded. This also applies to a baseline
    that does not know the ceiling.
    """
    for policy in ("spillway", "local"):
        sent, row, _ = await world(guardrails="utilisation_ceiling: 0.05", policy=policy)
        assert len(sent) == 1 and row["outcome"] == "proposed"
        assert any("is above utilisation_ceiling 5%" in note for note in row["notes"])


async def test_rows_of_refused_input_say_what_is_wrong(world):
    """A row lies in the future. The reason names it, and the costs are unknown."""
    row = dataclasses.replace(INPUTS.curves[0], fitted_at=NOW + 60)
    sent, row, _ = await world(inputs=dataclasses.replace(INPUTS, curves=(row, *INPUTS.curves[1:])))
    assert sent == [] and "60 s ahead of this clock" in row["reason"]
    assert row["objective_usd_per_hour"] != row["objective_usd_per_hour"] and row["binding"] == []


async def test_a_policys_shares_within_its_pins_are_what_is_sent(world):
    """A pinned route is sent as pinned, whatever the policy chooses."""
    pin = (
        "pins: [{source_cluster: west, source_service: frontend, traffic_class: 'backend GET /items/{id}', "
        "destinations: {west: 4000, east: 6000}}]"
    )
    (ruleset,), row, _ = await world(guardrails=pin, policy="local")
    (pinned,) = [w for k, w in of_ruleset(ruleset).items() if k[:2] == ("west", "frontend")]
    assert pinned == {"west": 4000, "east": 6000} and row["outcome"] == "proposed"


def test_the_quality_of_a_solution_that_was_not_extracted_is_its_gap():
    """A rollback may come from a solution of which no rules were made, so its loss is unknown."""
    solution = SimpleNamespace(relative_gap=0.001)
    assert Solved(None, solution, 1.0).quality == "gap 0.001"
    assert Solved(None, solution, 1.0, loss=Loss(0.01, 0.002)).quality == (
        "gap 0.001, lost 1.00e-02 by merging and 2.00e-03 by rounding"
    )
