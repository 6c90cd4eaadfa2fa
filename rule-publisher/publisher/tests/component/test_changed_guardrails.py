"""The publisher follows its guardrail file: bounds, denials, shadow mode and the kill switch."""

import asyncio
import time

import pytest
from proposed import RULESET, SPREAD
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component


async def killed(world) -> bool:
    """Returns whether the kill switch's ruleset is in every key."""
    values = [await world.value(cluster) for cluster in ("north", "south", "island")]
    return {value.policy for value in values} == {"kill"}


async def test_guardrails_file_is_enforced(world, make):
    """A step that exceeds maximum_shift is clamped and published, and the audit row says so."""
    (world.folder / "guardrails.yaml").write_text("maximum_shift: 1000")
    world.publisher(SPILLWAY_GUARDRAILS=str(world.folder / "guardrails.yaml"))
    await world.relays_serve(0)
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    weights = {d.cluster: d.weight for d in (await world.value("north")).rules[0].destinations}
    assert weights == {"north": 9000, "south": 1000}
    ((*_, reason),) = await world.rows(RULESET, 1, id=proposal.id)
    assert reason == "maximum_shift: changed 1 of 2 rules"


async def test_kill_switch_replaces_what_is_in_force(world, make):
    """After a restart with kill: true, local-first is published at once, and nothing else."""
    process = world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    version = await world.published(proposal)
    process.stop()
    (world.folder / "guardrails.yaml").write_text("kill: true")
    world.publisher(SPILLWAY_GUARDRAILS=str(world.folder / "guardrails.yaml"))

    await eventually_async(lambda: killed(world), "local-first in force")
    assert not (await world.value("north")).rules and (await world.value("north")).version > version
    refused = make(SPREAD)
    await world.propose(refused)
    ((_, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=refused.id)
    assert (outcome, reason.split(":")[0]) == ("refused", "kill")


async def test_a_changed_guardrail_file_counts_without_a_restart(world, make):
    """A saved file applies from the next refresh on.

    A mistake is counted and the last good guardrails stay. The kill switch acts at once.
    """
    guardrails = world.folder / "guardrails.yaml"
    guardrails.write_text("minimum_local_share: 5000")
    process = world.publisher(SPILLWAY_GUARDRAILS=str(guardrails))
    guardrails.write_text("minimum_local_share: all")
    counters = {}

    async def noticed() -> bool:
        counters.update(world.health(process)["counters"])
        return counters.get("guardrails.wrong", 0) == 1

    await eventually_async(noticed, "the mistake counted", seen=lambda: counters)
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    (rule,) = (await world.value("north")).rules
    assert {d.cluster: d.weight for d in rule.destinations} == {"north": 5000, "south": 5000}
    guardrails.write_text("frozen: true")  # the former name of `kill`
    await eventually_async(lambda: killed(world), "local-first in force")
    assert "frozen is now kill" in process.log.read_text()


async def test_the_kill_switch_acts_within_a_second(world, make):
    """Local-first is in every key within a second after the file was saved, three times in a row.

    Nothing that the process does at longer intervals delays it.
    """
    guardrails, took = world.folder / "guardrails.yaml", []
    guardrails.write_text("{}")
    world.publisher(SPILLWAY_GUARDRAILS=str(guardrails), SPILLWAY_PUBLISHER_REFRESH_S="60")
    for _ in range(3):
        proposal = make(SPREAD)
        await world.propose(proposal)
        await world.published(proposal)
        began = time.monotonic()
        guardrails.write_text("kill: true")
        while not await killed(world):
            assert time.monotonic() - began < 10, "local-first is not in force"
        took.append(time.monotonic() - began)
        guardrails.write_text("{operator_hold: false}")
        await asyncio.sleep(1)
    assert max(took) < 1, took


async def test_frozen_weights_are_renewed_and_only_the_operator_changes_them(world, make):
    """The optimizer's change is refused and names the rule. Its renewal and a denial pass."""
    guardrails = world.folder / "guardrails.yaml"
    guardrails.write_text("{}")
    process = world.publisher(SPILLWAY_GUARDRAILS=str(guardrails))
    first = make(SPREAD)
    await world.propose(first)
    await world.published(first)
    guardrails.write_text("freeze: true")
    await asyncio.sleep(1)
    change = make({"north": {"north": 5000, "south": 5000}})
    await world.propose(change)
    ((_, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=change.id)
    assert (outcome, reason.split(":")[0]) == ("refused", "freeze")
    assert "those of 'web' in 'north' for 'shop GET /items/{id}'" in reason
    renewal = make(SPREAD)
    await world.propose(renewal)
    await world.published(renewal)
    guardrails.write_text("{freeze: true, denied_destinations: [{clusters: [island]}]}")

    async def denied() -> bool:
        return bool((await world.value("north")).denials)

    await eventually_async(denied, "the denials in force")
    operators = make({"north": {"north": 5000, "south": 5000}}, origin=3)
    await world.propose(operators, origin="operator")
    await world.published(operators)
    assert world.health(process)["counters"]["refused.freeze"] == 1


async def test_shadow_mode_is_switched_by_the_file_while_it_runs(world, make):
    """In shadow mode every proposal is in the audit with its result, and no key is written.

    Without shadow mode the next proposal is published. Back in shadow mode, that ruleset expires.
    """
    guardrails = world.folder / "guardrails.yaml"
    guardrails.write_text("shadow: true")
    process = world.publisher(SPILLWAY_GUARDRAILS=str(guardrails))
    for _ in range(2):
        seen = make(SPREAD)
        await world.propose(seen)
        ((_, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=seen.id)
        assert (outcome, reason.split(";")[0]) == ("refused", "shadow: true: computed, not published")
    # The alert on expiry reads this counter.
    assert world.health(process)["counters"]["refused.shadow"] == 2
    assert not (await world.value("north")).version

    async def outcome_of(wanted: str) -> bool:
        proposal = make(SPREAD)
        await world.propose(proposal)
        ((_, outcome, _, _, _),) = await world.rows(RULESET, 1, id=proposal.id)
        return outcome == wanted

    guardrails.write_text("{}")
    await eventually_async(lambda: outcome_of("published"), "what is proposed is published")
    guardrails.write_text("shadow: true")
    await eventually_async(lambda: outcome_of("refused"), "shadow again")
    last = await world.value("north")
    assert last.version and last.policy != "kill"


async def test_denials_are_published_without_a_proposal(world, make):
    """A guardrail file's denials reach every key.

    They do so at the first start, with each proposal, and when the file changes. After a change,
    the denied destinations are removed from the ruleset in force.
    """
    guardrails = world.folder / "guardrails.yaml"
    guardrails.write_text("denied_destinations: [{clusters: [island]}]")
    world.publisher(SPILLWAY_GUARDRAILS=str(guardrails))

    async def says(*denied: str) -> bool:
        values = [await world.value(cluster) for cluster in ("north", "south", "island")]
        return all([list(d.clusters) for d in value.denials] == [list(denied)] for value in values)

    await eventually_async(lambda: says("island"), "the file's denials, though nobody proposed")
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    assert await says("island")
    guardrails.write_text("denied_destinations: [{clusters: [island, south]}]")
    await eventually_async(lambda: says("island", "south"), "the changed denials")
    north, south = await world.value("north"), await world.value("south")
    assert {d.cluster: d.weight for d in north.rules[0].destinations} == {"north": 10_000}
    assert (north.origin, north.expires_at, list(south.rules)) == (proposal.origin, proposal.expires_at, [])
