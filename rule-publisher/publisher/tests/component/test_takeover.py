"""A publisher whose bucket has lost the ruleset that relays hold.

The publisher learns that ruleset, or holds proposals.
"""

import asyncio
import time
from pathlib import Path

import pytest
import redis
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component

HALF = {"north": {"north": 4000, "south": 6000}}
AWAY = {"north": {"south": 10_000}}
BUCKET, CHECKPOINTS = "KV_spillway_rulesets", "SPILLWAY_CHECKPOINTS"
OUTCOME = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"


@pytest.fixture
def guarded(world):
    (world.folder / "guardrails.yaml").write_text("maximum_shift: 1000")
    world.environment["SPILLWAY_GUARDRAILS"] = str(world.folder / "guardrails.yaml")
    return world


async def in_force(world, make) -> int:
    """Publishes an operator's ruleset and waits for its checkpoint.

    maximum_shift does not bound an operator's ruleset. Returns the version.
    """
    first = make(HALF, origin=3)
    await world.propose(first, origin="operator")
    version = await world.published(first)

    async def kept() -> bool:
        return (await (await world.jetstream()).stream_info(CHECKPOINTS)).state.messages == 1

    await eventually_async(kept, "the checkpoint")
    return version


async def north(world) -> dict[str, int]:
    return {d.cluster: d.weight for d in (await world.value("north")).rules[0].destinations}


@pytest.mark.parametrize("restarted", [True, False])
async def test_steps_are_counted_from_what_relays_hold_when_the_bucket_was_lost(guarded, make, restarted):
    """The bucket and Redis are emptied.

    A starting publisher learns the checkpoint, and a running one remembers. A proposal with base
    version 0 is refused, and Redis has the ruleset again. A step is counted from that ruleset, not
    from local-first.
    """
    (guarded.folder / "guardrails.yaml").write_text("{maximum_shift: 1000, operator_hold: false}")
    process = guarded.publisher()
    version = await in_force(guarded, make)
    if restarted:
        process.kill()
    assert await (await guarded.jetstream()).delete_stream(BUCKET)
    redis.Redis.from_url(guarded.redis.url).flushall()
    if restarted:
        process.start()
    hot = await eventually_async(lambda: guarded.hot("spillway:ruleset:north"), "what is in force, in Redis")
    assert int(hot["version"]) == version
    nothing, step = make(AWAY, base_version=0), make(AWAY, base_version=version)
    await guarded.propose(nothing)
    ((outcome, reason),) = await guarded.rows(OUTCOME, 1, id=nothing.id)
    assert outcome == "refused" and f"version {version} is in force" in reason
    await guarded.propose(step)
    assert await guarded.published(step) > version
    assert await north(guarded) == {"north": 3000, "south": 7000}


async def test_a_publisher_that_cannot_learn_what_relays_hold_holds_and_says_so(guarded, make):
    """Bucket and checkpoints are lost, and relays report the version that they serve.

    Proposals, denials and resets are held until the operator lifts the bound.
    """
    process = guarded.publisher()
    version = await in_force(guarded, make)
    process.kill()
    js = await guarded.jetstream()
    assert await js.delete_stream(BUCKET) and await js.delete_stream(CHECKPOINTS)
    (guarded.folder / "guardrails.yaml").write_text(
        "{maximum_shift: 1000, denied_destinations: [{clusters: [island]}]}"
    )
    process.start()
    await guarded.relays_serve(version)
    step, reset = make(AWAY), make({}, origin=3)
    reset.reset_fences.append(1)
    for proposal, origin in ((step, "optimizer"), (reset, "operator")):
        await guarded.propose(proposal, origin=origin)
        ((outcome, reason),) = await guarded.rows(OUTCOME, 1, id=proposal.id)
        assert outcome == "refused"
        assert f"what is in force is unknown: relays of 'island' serve version {version}" in reason
    assert not (await guarded.value("north")).id
    assert "what is in force is unknown" in process.log.read_text()
    (guarded.folder / "guardrails.yaml").write_text("{}")
    await asyncio.sleep(1)
    again = make(AWAY)
    await guarded.propose(again)
    await guarded.published(again)
    assert await north(guarded) == {"south": 10_000}


async def test_where_nothing_was_ever_published_steps_begin_as_soon_as_relays_say_so(guarded, make):
    """Before any relay has reported, nothing is known.

    The refusal names the cluster to wait for.
    """
    guarded.publisher()
    early, first = make(HALF, base_version=0), make(HALF, base_version=0)
    await guarded.propose(early)
    ((_, reason),) = await guarded.rows(OUTCOME, 1, id=early.id)
    assert "no relay of 'island' has reported yet which version it serves" in reason
    await guarded.relays_serve(0)
    await guarded.propose(first)
    await guarded.published(first)
    assert await north(guarded) == {"north": 9000, "south": 1000}


async def test_a_renewal_after_an_outage_changes_no_weight(guarded, make):
    """The optimizer comes back after its ruleset has expired, under the shipped guardrails.

    Its renewal is published unchanged, and keeps the version of the last change.
    """
    shipped = Path(__file__).resolve().parents[4] / "infra" / "guardrails.yaml"
    (guarded.folder / "guardrails.yaml").write_text(shipped.read_text())
    guarded.publisher()
    await guarded.relays_serve(0)
    first = make({"north": {"north": 8000, "south": 2000}}, base_version=0)
    first.expires_at.FromNanoseconds(time.time_ns() + 5 * 10**9)
    await guarded.propose(first)
    version = await guarded.published(first)
    await asyncio.sleep(7)
    renewal = make({"north": {"north": 8000, "south": 2000}}, base_version=version)
    await guarded.propose(renewal)
    assert await guarded.published(renewal) > version
    assert await north(guarded) == {"north": 8000, "south": 2000}
    assert (await guarded.value("north")).rules[0].changed_version == version
    assert await guarded.rows(OUTCOME, 1, id=renewal.id) == [("published", "")]
