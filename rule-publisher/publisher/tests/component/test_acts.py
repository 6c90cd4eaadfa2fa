"""Acts reach every publisher, survive restarts, tighten what is published, and leave rows."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from proposed import SPREAD
from spillway_contracts.acts import Act
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.bucket import signing

pytestmark = pytest.mark.component

ROWS = (
    "SELECT outcome, actor, act, before, after, detail FROM operator_acts FINAL WHERE id = %(id)s "
    "ORDER BY at, outcome"
)
RULESET = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"


def weights(ruleset) -> list[dict[str, int]]:
    return [{d.cluster: d.weight for d in rule.destinations if d.weight} for rule in ruleset.rules]


async def send(world, act: Act, via: str = "operator") -> None:
    await (await world.jetstream()).publish(f"spillway.acts.{via}", act.to_json().encode())


def an_act(kind: str, act_id: str, seconds: float = 60, **values) -> Act:
    expires = None if kind == "end" else datetime.now(UTC) + timedelta(seconds=seconds)
    who = {"actor": "ada", "issuer": "os", "via": "operator", "reason": "incident 42"}
    return Act(**{"id": act_id, "act": kind, "expires": expires, **who, **values})


async def command(world, *arguments: str):
    return await asyncio.to_thread(world.command, *arguments)


async def test_a_freeze_survives_a_restart_and_ends_by_a_command(world, make):
    """Two publishers: whoever decides, both refuse. Who did what, and what came of it, are rows."""
    first, second = world.publisher(), world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    frozen = await command(world, "act", "freeze", "--reason", "incident 42", "--actor", "ada")
    assert frozen.returncode == 0, frozen.stderr
    (listed,) = json.loads((await command(world, "acts", "--json")).stdout)
    assert (listed["act"], listed["actor"], listed["state"]) == ("freeze", "ada", "in force")
    assert f"act end {listed['id']}" in frozen.stdout
    first.stop()
    second.stop()
    world.publisher()
    change = make({"north": {"north": 5000, "south": 5000}})
    await world.propose(change)
    ((outcome, reason),) = await world.rows(RULESET, 1, id=change.id)
    assert (outcome, reason.split(":")[0]) == ("refused", "freeze")
    ended = await command(world, "act", "end", listed["id"], "--reason", "over", "--actor", "grace")
    assert ended.returncode == 0, ended.stderr
    assert (await command(world, "acts")).stdout == "no act is in force\n"
    await asyncio.sleep(0.5)
    change = make({"north": {"north": 5000, "south": 5000}})
    await world.propose(change)
    await world.published(change)
    found = await world.rows(ROWS, 2, id=listed["id"])
    assert [row[:5] for row in found] == [
        ("accepted", "ada", "freeze", "false", "true"),
        ("ended", "ada", "freeze", "true", "false"),
    ]
    assert found[1][5].startswith("by grace (end-") and found[1][5].endswith("): over")


async def test_a_kill_acts_within_a_second_and_expires_by_itself(world, make):
    """Local-first is in every key, and a row names its proposal. After the expiry it is over."""
    world.publisher()
    world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    sent = time.monotonic()
    await send(world, an_act("kill", "kill-1", 4))

    async def local() -> bool:
        return all([(await world.value(c)).policy == "kill" for c in ("north", "south", "island")])

    await eventually_async(local, "local-first everywhere")
    assert time.monotonic() - sent < 3  # a second on a quiet machine
    (row, *_) = await world.rows(
        "SELECT proposal FROM operator_acts FINAL WHERE id = 'kill-1' AND outcome = 'proposed'", 1
    )
    assert row[0].startswith("kill-")
    await asyncio.sleep(4.5)
    again = make(SPREAD)
    await world.propose(again)
    await world.published(again)
    found = await world.rows(ROWS.replace("WHERE", "WHERE outcome != 'proposed' AND"), 2, id="kill-1")
    assert [row[0] for row in found] == ["accepted", "expired"]
    assert (found[1][3], found[1][4]) == ("true", "false")


async def test_a_denial_leaves_the_rules_in_force_and_comes_back(world, make):
    """It is proposed like one of the file. A forged value of the bucket does not count."""
    world.publisher()
    proposal = make({"north": {"north": 6000, "island": 4000}})
    await world.propose(proposal)
    await world.published(proposal)
    denied = await command(world, "act", "deny", "island", "--reason", "residency")
    assert denied.returncode == 0, denied.stderr

    async def gone() -> bool:
        value = await world.value("north")
        return weights(value) == [{"north": 10_000}] and list(value.denials[0].clusters) == ["island"]

    await eventually_async(gone, "the denial in force")
    forged = f'{{"act": {an_act("kill", "forged").to_json()}, "at": "2026-01-01T00:00:00Z", "before": "", "after": ""}}'
    await (await world.jetstream()).publish("$KV.spillway_acts.forged", forged.encode())
    (listed,) = json.loads((await command(world, "acts", "--json")).stdout)
    assert (await command(world, "act", "end", listed["id"], "--reason", "over")).returncode == 0

    async def lifted() -> bool:
        return not (await world.value("north")).denials

    await eventually_async(lifted, "no denial in force")
    assert (await world.value("north")).policy != "kill"


async def test_refused_acts_have_rows_with_the_reason(world):
    """Also what is no act at all, and an act in the name of another program."""
    process = world.publisher()
    await send(world, an_act("freeze", "long", 25 * 3600))
    ((outcome, *_, why),) = await world.rows(ROWS, 1, id="long")
    assert outcome == "refused" and why.startswith("expires:")
    await send(world, an_act("freeze", "other"), via="console")
    ((outcome, *_, why),) = await world.rows(ROWS, 1, id="other")
    assert (outcome, why) == ("refused", "via: operator; must be console, whose subject it was sent on")
    await (await world.jetstream()).publish("spillway.acts.console", b"{}")
    ((_, _, _, _, _, why),) = await world.rows(ROWS, 1, id="message-3")
    assert "id: Field required" in why
    assert world.health(process)["counters"]["acts.refused"] == 3


async def test_an_act_outlives_nats_data_and_the_key_that_signed_it(world, make):
    """A running publisher writes it again, signed by the present key, and still refuses."""
    process = world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    assert (await command(world, "act", "freeze", "--reason", "incident 42")).returncode == 0

    (act,) = json.loads((await command(world, "acts", "--json")).stdout)
    old, new = world.key, Ed25519PrivateKey.generate()

    async def signed_by_new() -> bool:
        js = await world.jetstream()
        found = await js.get_msg("KV_spillway_acts", subject=f"$KV.spillway_acts.{act['id']}")
        return found.headers["Spillway-Key-Id"] == signing.key_id(new.public_key())

    async def listed() -> bool:
        result = await command(world, "acts", "--json")
        return result.returncode == 0 and len(json.loads(result.stdout)) == 1

    world.trust(old, new)
    world.sign_by(new)
    await eventually_async(signed_by_new, "signed by the new key")
    world.trust(new)
    assert await listed()
    world.nats.kill()
    (world.folder / "nats" / "jetstream").rename(world.folder / "lost")
    world.nats.start()
    await eventually_async(listed, "written again")
    await eventually_async(lambda: world.health(process)["status"] == 200, "ready again")
    change = make({"north": {"north": 5000, "south": 5000}})
    await world.propose(change)
    ((outcome, reason),) = await world.rows(RULESET, 1, id=change.id)
    assert (outcome, reason.split(":")[0]) == ("refused", "freeze")
