"""The optimizer as a process, with real Redis, NATS and ClickHouse."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
import two_applications
from optimizer_process import TOPOLOGY
from optimizer_world import west
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import names, topology
from spillway_contracts import ruleset as contract
from spillway_lab.testing.waiting import eventually
from spillway_optimizer.clients.history import History
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.rules import of_ruleset

pytestmark = pytest.mark.component

BACKEND = "backend GET /items/{id}"


def test_boards_become_a_verified_proposal_that_is_renewed_and_follows_the_policy(world):
    """One run of the process, from its first proposal to SIGTERM.

    The first proposal is correct, and is in JetStream with its row in ClickHouse. A renewal has a
    newer input window. A change of policy takes effect at once, and an unknown policy is ignored.
    SIGTERM gives the lease back.
    """
    world.publishing = True
    with world.process("run") as process:
        first = eventually(world.proposals, "a proposal")[0]
        assert contract.check(first, topology.load(TOPOLOGY)) == []
        assert (first.origin, first.policy, first.version) == (Origin.ORIGIN_OPTIMIZER, "spillway", 0)
        assert 7000 < west(first, "gateway")["west"] < 9000
        assert 25 < first.predicted.mean_latency_ms < 32
        assert all(rule.reason for rule in first.rules) and len(first.traffic_classes) == 3
        renewed = eventually(lambda: world.proposals()[1:], "a renewal")[0]
        assert renewed.rules[0].destinations == first.rules[0].destinations
        assert renewed.input_window.id != first.input_window.id
        metrics = eventually(
            lambda: with_prediction_error(process.metrics()), "a prediction beside what is observed"
        )
        assert metrics["spillway_optimizer_leader", "optimizer"] == 1
        assert metrics["spillway_optimizer_solves_total", "proposed"] >= 1
        assert 0.025 < metrics["spillway_optimizer_predicted_mean_latency_seconds", ""] < 0.032
        assert metrics["spillway_optimizer_input_timestamp_seconds", "demand,west"] > time.time() - 60
        world.command_policy("waterfall")
        switched = eventually(lambda: by_policy(world, "waterfall"), "waterfall")[0]
        assert west(switched, "gateway") == {"west": 10_000}
        assert 8800 < west(switched, "frontend")["west"] < 8950
        world.redis.set(names.REDIS_KEY_POLICY, "fastest")
        eventually(lambda: "unknown 'fastest'" in process.log.read_text(), "the complaint")
        assert f"allowed: {', '.join(sorted(REGISTRY))}" in process.log.read_text()
        eventually(
            lambda: {"proposed", "renewed", "unchanged"} <= {o for o, _, _ in world.solves()}, "solve rows"
        )
        process.end()
        assert world.redis.get(names.REDIS_KEY_LEASE.format(role="optimizer")) is None


def with_prediction_error(metrics: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Returns all samples once they include the error of the prediction, else {}."""
    return metrics if ("spillway_optimizer_prediction_error_ratio", "") in metrics else {}


def by_policy(world, policy: str) -> list:
    return [proposal for proposal in world.proposals() if proposal.policy == policy]


def test_stale_boards_are_refused_and_said_so(world):
    """The telemetry is a minute old.

    Every solve is refused, with a row that names the board, and nothing is proposed. Proposals
    begin once the boards are fresh.
    """
    world.age_s = 60

    def refusals() -> int:
        return sum(bool(re.search(r"'west' is 6\d s old", reason)) for _, _, reason in world.solves())

    with world.process("run"):
        eventually(lambda: refusals() >= 3, "refusals", seen=world.solves)
        assert {outcome for outcome, _, _ in world.solves()} == {"refused"}
        assert world.proposals() == []
        world.age_s = 0
        eventually(world.proposals, "a proposal")


def test_only_the_newest_rows_of_the_last_hour_are_the_model(world):
    """Of several curves of one class, the newest one is read.

    Curves that are older than an hour are ignored. Of a pair of clusters, the newest minute of the
    last day is read.
    """
    now = datetime.now(UTC)
    row = next(r for r in world.model["curves"] if r["class"] == BACKEND)
    rows = [
        {**row, "fitted_at": now + timedelta(seconds=1), "a_ms": 5.5},
        {**row, "fitted_at": now - timedelta(minutes=1), "a_ms": 4.4},
        {**row, "fitted_at": now - timedelta(hours=2), "class": "backend GET /old"},
    ]
    world.clickhouse.execute(f"INSERT INTO curves ({', '.join(row)}) VALUES", rows)
    times = [(now - timedelta(seconds=5 * n), "here", "there", 80.0, 78.0, 99.0, 500) for n in range(20)]
    times += [
        (now, "here", "there", 1.0, 1.0, 1.0, 4),
        (now - timedelta(days=2), "here", "old", 9.0, 9.0, 9.0, 500),
    ]
    columns = "window_end, source_cluster, destination_cluster, mean_ms, p50_ms, p99_ms, samples"
    world.clickhouse.execute(f"INSERT INTO network_times ({columns}) VALUES", times)
    history = History(world.clickhouse_url)
    model = history.model()
    history.close()
    found = {r.class_id: r for r in model.curves}
    pairs = [r for r in model.network if r.source_cluster == "here"]
    assert len(pairs) == 12 and {(r.destination_cluster, r.mean_ms) for r in pairs} == {("there", 80.0)}
    assert max(r.window_end for r in pairs) == pytest.approx(now.timestamp(), abs=0.01)
    assert found[BACKEND].a_ms == 5.5
    assert found[BACKEND].fitted_at == pytest.approx(now.timestamp() + 1, abs=0.01)
    assert "backend GET /old" not in found


def test_a_service_that_leaves_its_heartbeat_leaves_the_rules(world):
    """East's backend is drained, and the next proposal sends nothing there."""
    world.publishing = True
    with world.process("run"):
        eventually(world.proposals, "a proposal")
        world.placed["east"] -= {"backend"}

        def drained():
            rules = world.proposals()[-1].rules
            backend = [r for r in rules if r.traffic_class.service == "backend"]
            return backend and all(d.cluster == "west" for r in backend for d in r.destinations)

        eventually(drained, "rules without east's backend")


def test_an_application_that_cannot_be_modelled_is_held_beside_a_healthy_one(world, tmp_path):
    """Of two applications, one loses the curve of a class with much load.

    Its rules are renewed unchanged, with the reason in the rules and in the row. The other
    application's rules are still solved for.
    """
    (tmp_path / "topology.yaml").write_text(two_applications.topology_text())
    world.model = two_applications.document()
    world.placed = dict.fromkeys(world.placed, two_applications.SERVICES)
    world.fill_history()
    world.publishing = True
    with world.process("run", SPILLWAY_TOPOLOGY=str(tmp_path / "topology.yaml")) as process:

        def both() -> list[Ruleset]:
            return [p for p in world.proposals() if len({r.traffic_class.service for r in p.rules}) == 4]

        first = eventually(both, "rules of both", seen=process.tail)[-1]
        world.clickhouse.execute("TRUNCATE TABLE curves")
        world.model["curves"] = [row for row in world.model["curves"] if row["class"] != BACKEND]
        world.fill_history()

        def renewals() -> list[Ruleset]:
            return [p for p in world.proposals() if any(r.reason.startswith("held: curves") for r in p.rules)]

        held = eventually(lambda: renewals()[1:], "two renewals", seen=process.tail)[0]
    assert of_ruleset(held) == of_ruleset(first)
    assert {r.traffic_class.service for r in held.rules if r.reason.startswith("held")} == {
        "frontend",
        "backend",
    }
    rows = world.clickhouse.execute("SELECT application, outcome, notes FROM solves ORDER BY at")
    renewal_notes = [
        notes for application, outcome, notes in rows if (application, outcome) == ("gateway", "renewed")
    ]
    assert any("refused: curves" in note for notes in renewal_notes for note in notes)
    assert not any("refused" in note for application, _, notes in rows if application for note in notes
                   if application.startswith(two_applications.OTHER))  # fmt: skip
