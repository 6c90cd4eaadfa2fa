"""The operator's commands, run as processes."""

import json
import time
from datetime import UTC, datetime

import pytest
from google.protobuf import json_format
from spillway_contracts import names

pytestmark = pytest.mark.component

SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}
LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}


async def test_rollback_and_status(world, make):
    """One command publishes an earlier version's rules as a new version.

    The new version has an audit row, and the operator's hold applies.
    """
    world.publisher()
    versions = []
    for rules in (LOCAL, SPREAD, SPREAD):
        proposal = make(rules)
        await world.propose(proposal)
        versions.append(await world.published(proposal))
    done = world.command("rollback", "--reason", "checkout is slow")
    north = await world.value("north")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"version {north.version} is in force: the rules of version {versions[0]}\n"
    assert north.version > versions[-1] and "left out" not in done.stderr
    assert [(d.cluster, d.weight) for d in north.rules[0].destinations] == [("north", 10_000)]
    audit = "SELECT origin, outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    reason = f"rollback to version {versions[0]}: checkout is slow"
    assert await world.rows(audit, 1, id=north.id) == [("operator", "published", reason)]
    overtaken = make(SPREAD)
    await world.propose(overtaken)
    assert "operator_hold: true" in (await world.rows(audit, 1, id=overtaken.id))[0][2]
    done = world.command("status", "--json")
    table = json.loads(done.stdout)
    assert [(row["cluster"], row["version"], row["origin"], row["acks"]) for row in table] == [
        (cluster, north.version, "operator", 0) for cluster in ("island", "north", "south")
    ]
    assert "operator" in world.command("status").stdout
    done = world.command("rollback", "--to", "99", "--reason", "x")
    assert done.returncode == 1 and "--to 99: not in the history of every cluster; versions: " in done.stderr


async def test_a_rollback_reaches_back_beyond_the_buckets_history_and_restarts(world, make):
    """80 renewals push a ruleset out of the bucket's 64 versions, and the publisher is killed.

    The ruleset's checkpoint is found by time and by version. Checkpoints last 30 days, and renewals
    make none. A rollback does not use a checkpoint without a trusted signature.
    """
    process = world.publisher()
    first, change = make(SPREAD), make(LOCAL)
    await world.propose(first)
    old = await world.published(first)
    await world.propose(change)
    changed = await world.published(change)
    for _ in range(80):
        renewal = make(LOCAL)
        await world.propose(renewal)
    await world.published(renewal)
    process.kill()
    process.start()
    table = json.loads(world.command("history", "--json").stdout)
    assert [row["version"] for row in table] == [changed, old]
    kept = await (await world.jetstream()).stream_info(names.NATS_STREAM_CHECKPOINTS)
    assert (kept.state.messages, kept.config.max_age) == (2, 30 * 86_400)
    when = datetime.fromtimestamp(changed / 1000, UTC).isoformat()
    done = world.command("rollback", "--before", when, "--reason", "since then checkout is slow")
    north = await world.value("north")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"version {north.version} is in force: the rules of version {old}\n"
    assert [(d.cluster, d.weight) for d in north.rules[0].destinations] == [("north", 4000), ("south", 6000)]
    assert north.origin == 3 and north.rules[0].changed_version == north.version
    done = world.command("rollback", "--to", str(changed + 1), "--reason", "back again")
    assert done.returncode == 0 and done.stdout.endswith(f"the rules of version {changed}\n"), done.stderr
    await world.forge_checkpoint(make({"north": {"south": 10_000}}, version=time.time_ns() // 1_000_000))
    done = world.command("history", "--json")
    assert len(json.loads(done.stdout)) == 4 and "left out: rulesets that" in done.stderr
    done = world.command("rollback", "--before", "1999-01-01", "--reason", "x")
    assert done.returncode == 1 and "--before 1999-01-01: no checkpoint" in done.stderr


async def test_commands_without_a_server_say_so(world):
    """A wrong NATS URL gives one line that names the variable.

    Before anything was published, commands print no traceback.
    """
    done = world.command("status", SPILLWAY_NATS_URL="nats://u:topsecret@127.0.0.1:1")
    assert done.returncode == 1 and done.stderr.startswith("SPILLWAY_NATS_URL: cannot connect")
    assert "topsecret" not in done.stderr
    done = world.command("rollback", "--reason", "x")
    assert done.returncode == 1 and "has a publisher ever run against this server?" in done.stderr


def test_configuration_errors_name_every_variable(world):
    """The command exits with code 64 and one line for each wrong variable.

    For the topology and the guardrails, the line names the file and the key.
    """
    done = world.command("run", SPILLWAY_NATS_URL="http://x", SPILLWAY_HEALTH_LISTEN="here")
    assert done.returncode == 64
    assert done.stderr.splitlines() == [
        "SPILLWAY_NATS_URL: must be nats://user:password@host:port, or tls:// for TLS",
        "SPILLWAY_HEALTH_LISTEN: must be host:port with a port of 1 to 65535",
    ]
    policy = world.folder / "guardrails.yaml"
    policy.write_text("maximum_shfit: 3")
    done = world.command("run", SPILLWAY_HEALTH_LISTEN="127.0.0.1:1", SPILLWAY_GUARDRAILS=str(policy))
    assert done.returncode == 64 and f"{policy}: maximum_shfit: unknown key; keys: " in done.stderr
    topology = world.folder / "topology.yaml"
    topology.write_text(
        "clusters: [{name: north}]\nlinks: [{source_cluster: north, destination_cluster: mars}]"
    )
    done = world.command("run", SPILLWAY_HEALTH_LISTEN="127.0.0.1:1")
    assert done.returncode == 64 and "links[0].destination_cluster: unknown cluster 'mars'" in done.stderr


def test_validate(world, make):
    """A good file gives exit code 0.

    A bad file gives exit code 1 and every problem with its key.
    """
    path = world.folder / "ruleset.json"
    proposal = make(SPREAD)
    path.write_text(json_format.MessageToJson(proposal, preserving_proto_field_name=True))
    assert (world.command("validate", str(path)).returncode) == 0
    proposal.rules[0].source_cluster = "mars"
    proposal.rules[1].destinations[0].weight = 5
    path.write_text(json_format.MessageToJson(proposal))
    done = world.command("validate", str(path))
    assert done.returncode == 1
    assert f"{path}: rules[0].source_cluster: unknown cluster 'mars'" in done.stdout
    assert f"{path}: rules[1].destinations: weights sum to 5; must be 10000" in done.stdout
    path.write_text('{"rulez": []}')
    done = world.command("validate", str(path))
    assert done.returncode == 1 and "rulez" in done.stdout
