"""Changes between two periods take effect at once, and an earlier leader is refused.

The earlier leader has lost its lease.
"""

import asyncio
import contextlib
import os
import signal
import sys
import urllib.request
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from optimizer_process import LEASE, TOPOLOGY
from optimizer_world import west
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually
from spillway_optimizer.clients.proposals import Proposals

pytestmark = pytest.mark.component

ENTRY, BACKEND = "gateway GET /items/{id}", "backend GET /items/{id}"
# A period longer than any test, so that no solve in a test is due to the period.
SELDOM = {"SPILLWAY_OPTIMIZER_PERIOD_S": "1000", "SPILLWAY_OPTIMIZER_MIN_INTERVAL_S": "0.2"} | LEASE
TRIGGERS = "SELECT DISTINCT trigger FROM solves WHERE outcome != 'refused'"


@contextlib.contextmanager
def publisher(world):
    """Runs the real publisher as a process."""
    port, key = servers.free_port(), world.folder / "signing.key"
    signing = Ed25519PrivateKey.generate()
    key.write_bytes(signing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    process = servers.Server(
        url=f"http://127.0.0.1:{port}/readyz",
        command=[sys.executable, "-m", "spillway_publisher", "run"],
        environment={
            "SPILLWAY_NATS_URL": world.nats_url,
            "SPILLWAY_REDIS_URL": world.redis_server.url,
            "SPILLWAY_CLICKHOUSE_URL": world.clickhouse_url,
            "SPILLWAY_TOPOLOGY": str(TOPOLOGY),
            "SPILLWAY_SIGNING_KEY": str(key),
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}",
            "SPILLWAY_PUBLISHER_REFRESH_S": "0.5",
        },
        log=world.folder / "publisher.log",
        ready=lambda: answers(port),
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


def answers(port: int) -> bool:
    """Whether /readyz at this port answers with success."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
        return True
    return False


async def publish_proposal(nats_url: str, ruleset: Ruleset) -> None:
    """Publishes a ruleset as a proposal of the optimizer."""
    proposals = Proposals(nats_url, "optimizer")
    await proposals.publish(ruleset)
    await proposals.close()


def triggers(world) -> set[str]:
    """Returns the triggers of all solves that were not refused."""
    return {trigger for (trigger,) in world.clickhouse.execute(TRIGGERS)}


def test_load_placement_policy_and_guardrails_are_followed_at_once(world, tmp_path):
    """The period is a quarter of an hour.

    Each change still leads to a proposal, and to a row that names the trigger. A wrong guardrail
    file is reported and changes nothing.
    """
    world.publishing = True
    guardrails = tmp_path / "guardrails.yaml"
    guardrails.write_text("{}")
    with world.process("run", SPILLWAY_GUARDRAILS=str(guardrails), **SELDOM) as process:
        first = west(eventually(world.proposals, "a proposal", seen=process.tail)[0], "gateway")
        for board in ("demand", "load"):
            world.model[board]["west"][ENTRY]["rps"] *= 2

        def more_away() -> bool:
            return west(world.proposals()[-1], "gateway")["east"] > first["east"]

        eventually(more_away, "rules for twice the load", seen=process.tail)
        guardrails.write_text("denied_destinations: [{source_cluster: west, clusters: [east]}]")

        def none_away() -> bool:
            rules = [r for r in world.proposals()[-1].rules if r.source_cluster == "west"]
            return {d.cluster for r in rules for d in r.destinations} == {"west"}

        eventually(none_away, "rules within the denial", seen=process.tail)
        guardrails.write_text("denied_destinations: [{source_cluster: west, clusters: [moon]}]")
        eventually(lambda: "unknown cluster 'moon'" in process.log.read_text(), "the complaint")
        before = len(world.proposals())
        world.placed["east"] -= {"backend"}
        eventually(lambda: len(world.proposals()) > before, "rules without east's backend", seen=process.tail)
        assert none_away()
        world.command_policy("local")
        eventually(lambda: world.proposals()[-1].policy == "local", "the policy", seen=process.tail)
        wanted = {"start", "load", "guardrails", "placement", "policy"}
        eventually(
            lambda: triggers(world) == wanted, "rows with their triggers", seen=lambda: triggers(world)
        )


def test_a_class_that_denials_leave_nowhere_is_closed_and_the_rest_goes_on(world, tmp_path):
    """No rule leads to a denied cluster, even if a class then has no destination.

    The row names the class that is closed.
    """
    guardrails = tmp_path / "guardrails.yaml"
    guardrails.write_text(f'denied_destinations: [{{traffic_class: "{BACKEND}", clusters: [west, east]}}]')
    with world.process("run", SPILLWAY_GUARDRAILS=str(guardrails)) as process:
        proposal = eventually(world.proposals, "a proposal", seen=process.tail)[0]
        assert {rule.traffic_class.service for rule in proposal.rules} == {"frontend"}
        notes = "SELECT notes FROM solves WHERE outcome = 'proposed'"
        eventually(lambda: world.clickhouse.execute(notes), "the row")
        assert any("denied everywhere, so closed" in note for note in world.clickhouse.execute(notes)[0][0])


def test_a_row_tells_the_terms_of_the_objective(world):
    """Compute, network, egress and failures sum up to the objective.

    The bound is not above the solution. The losses of extraction are almost zero.
    """
    columns = (
        "compute_usd_per_hour + network_usd_per_hour + egress_usd_per_hour + failure_usd_per_hour, objective_usd_per_hour, "
        "solution_usd_per_hour, bound_usd_per_hour, merging_loss, rounding_loss, binding, duration_ms, input_window"
    )
    with world.process("run"):
        proposed = f"SELECT {columns}, ruleset_id FROM solves WHERE outcome = 'proposed'"
        row = eventually(lambda: world.clickhouse.execute(proposed), "a row")[0]
    total, objective, solution, bound, merging, rounding, binding, duration_ms, window, ruleset_id = row
    assert total == pytest.approx(objective) and objective == pytest.approx(solution, rel=1e-3)
    assert 0 < bound <= solution * (1 + 1e-9)
    assert abs(merging) < 1e-6 and abs(rounding) < 1e-3
    assert isinstance(binding, list) and duration_ms > 0
    sent = {proposal.id: proposal for proposal in world.proposals()}[ruleset_id]
    assert sent.input_window.id == window


def test_a_leader_that_was_stopped_past_its_lease_is_not_heard(world):
    """The leader is stopped with SIGSTOP, and a standby takes over with a larger token.

    After SIGCONT, the old leader stands by. A late proposal with its token is refused by the
    publisher. The new leader's proposals are published.
    """
    token = {}
    with world.process("run", SPILLWAY_POLICY="spillway") as leader:
        token["old"] = eventually(world.proposals, "a proposal", seen=leader.tail)[0].fencing_token
        with world.process("run", SPILLWAY_POLICY="local") as standby, publisher(world):
            eventually(lambda: "standing by" in standby.log.read_text(), "a standby")
            os.kill(leader.popen.pid, signal.SIGSTOP)
            try:
                eventually(
                    lambda: world.proposals()[-1].policy == "local", "the standby's word", seen=standby.tail
                )
            finally:
                os.kill(leader.popen.pid, signal.SIGCONT)
            eventually(lambda: "standing by" in leader.log.read_text(), "the old leader standing by")
            # As if the old leader was stopped between checking its lease and sending a proposal.
            newest = [proposal for proposal in world.proposals() if proposal.policy == "local"][-1]
            token["new"] = newest.fencing_token
            assert token["new"] > token["old"] > 0
            in_force = names.REDIS_KEY_IN_FORCE.format(cluster="west")
            eventually(
                lambda: '"local"' in (world.redis.get(in_force) or ""), "the new leader's rules in force"
            )
            late = Ruleset()
            late.CopyFrom(newest)
            late.id, late.policy, late.fencing_token = str(uuid.uuid4()), "spillway", token["old"]
            late.created_at.GetCurrentTime()
            asyncio.run(publish_proposal(world.nats_url, late))
            asked = f"SELECT outcome, reason FROM rulesets WHERE ruleset_id = '{late.id}'"
            ((outcome, reason),) = eventually(
                lambda: world.clickhouse.execute(asked), "the publisher's answer"
            )
            assert outcome == "refused" and f"fencing_token: {token['old']} is of an earlier leader" in reason
