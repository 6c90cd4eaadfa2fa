"""Servers and publishers that are killed.

Versions keep increasing, nothing is published twice, and everything recovers.
"""

import asyncio
import random
import time

import pytest
from spillway_contracts import names, slices
from spillway_lab.testing.waiting import STOP_S, eventually_async
from spillway_publisher.bucket.bucket import Bucket, ConflictError
from spillway_publisher.bucket.values import Values
from spillway_publisher.process.telemetry import Telemetry

pytestmark = pytest.mark.component

SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}
LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}
VERSIONS = (
    "SELECT version, count() FROM rulesets WHERE ruleset_id IN %(ids)s GROUP BY version ORDER BY version"
)


async def test_versions_increase_over_kill_and_restart(world, make):
    """After kill -9 between proposals, versions keep increasing, and each has exactly one row."""
    process = world.publisher()
    proposals, versions = [make(SPREAD) for _ in range(4)], []
    for proposal in proposals:
        await world.propose(proposal)
        versions.append(await world.published(proposal))
        process.kill()
        process.start()
    assert versions == sorted(set(versions))
    ids = tuple(p.id for p in proposals)
    assert await world.rows(VERSIONS, 4, ids=ids) == [(version, 1) for version in versions]


async def test_a_half_written_version_is_completed(world, make):
    """A publisher died after its first key.

    The redelivered proposal keeps its version everywhere.
    """
    world.publisher().stop()
    proposal = make(SPREAD)
    await world.propose(proposal)
    parts = slices.cut(proposal, ["north", "south", "island"], 5)
    await world.put("island", parts["island"].SerializeToString())
    process = world.publisher()
    assert await world.published(proposal) == 5
    following = make(SPREAD)
    await world.propose(following)
    later = await world.published(following)
    assert later > 5
    assert await world.rows(VERSIONS, 2, ids=(proposal.id, following.id)) == [(5, 1), (later, 1)]
    assert world.health(process)["counters"]["proposals.published"] == 2


async def test_two_publishers_share_the_work(world, make):
    """Two publishers on one server: every proposal has a version of its own, in order."""
    often = {"SPILLWAY_PUBLISHER_ACK_WAIT_S": "5", "SPILLWAY_PUBLISHER_REFRESH_S": "0.01"}
    both = [world.publisher(**often), world.publisher(**often)]
    proposals = [make(SPREAD) for _ in range(20)]
    for proposal in proposals:
        await world.propose(proposal)
    await world.published(proposals[-1])
    values = Values(world.keys(), Telemetry())
    history = [stored.ruleset for stored in await values.history(await world.jetstream(), "north")]
    assert [ruleset.id for ruleset in history] == [proposal.id for proposal in proposals]
    ids = tuple(p.id for p in proposals)
    assert await world.rows(VERSIONS, 20, ids=ids) == [(ruleset.version, 1) for ruleset in history]
    assert sum(world.health(p)["counters"].get("proposals.published", 0) for p in both) == 20


async def test_another_publishers_write_is_a_conflict_not_an_overwrite(world, make):
    """Another publisher moved the claim key, so this one takes the version after it."""
    process = world.publisher(SPILLWAY_PUBLISHER_REFRESH_S="60")
    # As if from a publisher whose clock was wrong, by less than the limit of refusal.
    ahead = time.time_ns() // 1_000_000 + names.VALUE_VERSION_AHEAD_MS // 2
    parts = slices.cut(make(LOCAL), ["north", "south", "island"], ahead)
    for cluster, part in parts.items():
        await world.put(cluster, part.SerializeToString())
    proposal = make(SPREAD)
    await world.propose(proposal)
    assert await world.published(proposal) == ahead + 1
    assert world.health(process)["counters"]["proposals.conflict"] == 1


async def test_a_refresh_between_deciding_and_writing_is_a_conflict(world, make):
    """A version computed before another publisher's became visible does not replace it."""
    world.publisher().stop()
    js, clusters = await world.jetstream(), ["island", "north"]
    ours, theirs = (Bucket(clusters, world.keys(), Telemetry()) for _ in range(2))
    for bucket in (ours, theirs):
        bucket.attach(js)
        await bucket.load()
    stale = slices.cut(make(LOCAL), clusters, ours.next_version())
    newer = slices.cut(make(SPREAD), clusters, theirs.next_version() + 1)
    await theirs.claim(newer["island"])
    await theirs.write("north", newer["north"])
    with pytest.raises(ConflictError):
        await ours.claim(stale["island"])  # not seen yet: the revision conflicts
    await ours.refresh()
    with pytest.raises(ConflictError):
        await ours.claim(stale["island"])  # seen: the version conflicts
    await ours.write("north", stale["north"])
    assert (await world.value("north")).id == newer["north"].id


async def test_kills_at_random_moments_neither_lose_nor_repeat(world, make):
    """A publisher is killed again and again during a stream of proposals.

    Each proposal is published exactly once, in order, and has exactly one row.
    """
    process = world.publisher()
    proposals = [make(SPREAD) for _ in range(24)]
    chance = random.Random(7)
    for i, proposal in enumerate(proposals):
        await world.propose(proposal)
        await asyncio.sleep(chance.uniform(0, 0.06))
        if i % 6 == 3:
            process.kill()
            process.start()
    await world.published(proposals[-1])
    history = await Values(world.keys(), Telemetry()).history(await world.jetstream(), "north")
    assert [stored.ruleset.id for stored in history] == [proposal.id for proposal in proposals]
    versions = [stored.ruleset.version for stored in history]
    assert versions == sorted(set(versions))
    ids = tuple(proposal.id for proposal in proposals)
    assert await world.rows(VERSIONS, 24, ids=ids) == [(version, 1) for version in versions]
    rules = "SELECT ruleset_id, count() FROM rules WHERE ruleset_id IN %(ids)s GROUP BY ruleset_id"
    assert {count for _, count in await world.rows(rules, 24, ids=ids)} == {3}


async def test_nats_restart_and_lost_data(world, make):
    """NATS comes back with its data; then without it, and with a new publisher process.

    Streams and bucket are created again, and versions continue above all earlier ones.
    """
    process = world.publisher()
    first, second, third = (make(SPREAD) for _ in range(3))
    await world.propose(first)
    before = await world.published(first)
    world.nats.kill()
    await eventually_async(lambda: world.health(process)["status"] == 503, "not ready while NATS is away")
    assert world.health(process)["problems"]["nats"]
    world.nats.start()
    await eventually_async(lambda: world.health(process)["status"] == 200, "ready again")
    await world.propose(second)
    between = await world.published(second)
    world.nats.kill()
    process.kill()  # so that the process does not remember the versions either
    (world.folder / "nats" / "jetstream").rename(world.folder / "lost")
    world.nats.start()
    process.start()

    async def again() -> bool:
        try:
            await world.propose(third)
            return True
        except Exception:
            return False

    await eventually_async(again, "streams are there again")
    assert before < between < await world.published(third)


async def test_redis_restart_heals(world, make):
    """A Redis that comes back empty has the rulesets in force again within a period.

    That needs no proposal.
    """
    process = world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    await eventually_async(lambda: world.hot("spillway:ruleset:south"), "in_force")
    world.redis.kill()
    other = make(LOCAL)
    await world.propose(other)
    await world.published(other)  # Redis is not needed to publish
    world.redis.start()
    await eventually_async(
        lambda: (world.hot("spillway:ruleset:south") or {}).get("id") == other.id, "in_force in the new Redis"
    )
    assert world.health(process)["status"] == 200


async def test_clickhouse_away_never_blocks_and_loses_nothing(world, clickhouse, make):
    """Publishing continues without ClickHouse. When it is back, the rows arrive once each."""
    process = world.publisher()
    clickhouse.kill()
    world.clickhouse.disconnect()
    proposals = [make(SPREAD) for _ in range(5)]
    for proposal in proposals:
        await world.propose(proposal)
    await world.published(proposals[-1])
    await eventually_async(
        lambda: "clickhouse" in world.health(process)["degraded"], "ClickHouse is reported as away"
    )
    clickhouse.start()
    ids = tuple(p.id for p in proposals)
    rows = await world.rows(VERSIONS, 5, ids=ids)
    assert [count for _, count in rows] == [1] * 5 and rows[-1][0] == (await world.value("north")).version


async def test_rows_that_a_crash_lost_are_recovered(world, clickhouse, make):
    """The publisher is killed while ClickHouse is away.

    Its next start records the bucket's versions.
    """
    process = world.publisher()
    clickhouse.kill()
    world.clickhouse.disconnect()
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    process.kill()
    clickhouse.start()
    process.start()
    statement = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    recovered = "recovered from the rulesets bucket after a restart"
    assert await world.rows(statement, 1, id=proposal.id) == [("published", recovered)]
    assert len(await world.rows("SELECT weight FROM rules WHERE ruleset_id = %(id)s", 3, id=proposal.id)) == 3


async def test_starts_before_its_servers_and_ends_when_asked(world, make):
    """A publisher that starts while NATS and Redis are away reports that, and works later.

    After SIGTERM, it exits with code 0.
    """
    world.nats.kill()
    world.redis.kill()
    process = world.publisher(ready=False)
    assert world.health(process)["status"] == 503
    world.nats.start()
    world.redis.start()
    await eventually_async(lambda: world.health(process)["status"] == 200, "ready")
    proposal = make(SPREAD)
    await world.propose(proposal)
    await world.published(proposal)
    running = process.process
    running.terminate()
    assert running.wait(STOP_S) == 0
    secret = world.environment["SPILLWAY_NATS_URL"].split(":")[2].split("@")[0]
    assert secret not in process.log.read_text()


async def test_a_late_leader_is_refused_by_a_publisher_that_was_restarted(world, make):
    """The newest fencing token survives kill -9, because it is in the bucket's history."""
    process = world.publisher()
    newest = make(SPREAD, fencing_token=200)
    await world.propose(newest)
    await world.published(newest)
    process.kill()
    process.start()
    late, present = make(LOCAL, fencing_token=100), make(LOCAL, fencing_token=200)
    await world.propose(late)
    await world.propose(present)
    await world.published(present)
    refused = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    ((outcome, reason),) = await world.rows(refused, 1, id=late.id)
    assert outcome == "refused" and "fencing_token: 100 is of an earlier leader" in reason


async def test_an_absurd_fencing_token_locks_nobody_out_and_the_operator_resets_a_plausible_one(world, make):
    """The token 2^63 is refused, and the leader continues.

    A token half an hour ahead locks the leader out until the operator's reset. The reset survives
    kill -9 and changes no rule.
    """
    process = world.publisher()
    now = time.time_ns() // 1000
    absurd, leader = make(LOCAL, fencing_token=2**63), make(SPREAD, fencing_token=now)
    await world.propose(absurd)
    await world.propose(leader)
    await world.published(leader)
    audit = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    ((outcome, reason),) = await world.rows(audit, 1, id=absurd.id)
    assert outcome == "refused" and f"fencing_token: {2**63}; must be at most" in reason
    ahead, locked_out = make(SPREAD, fencing_token=now + 1_800_000_000), make(LOCAL, fencing_token=now)
    await world.propose(ahead)
    await world.published(ahead)
    await world.propose(locked_out)
    ((outcome, reason),) = await world.rows(audit, 1, id=locked_out.id)
    assert outcome == "refused" and "is of an earlier leader" in reason
    done = world.command("reset-fence", "--origin", "optimizer", "--reason", "a wrong clock")
    assert done.returncode == 0, done.stderr
    north = await world.value("north")
    assert [(d.cluster, d.weight) for d in north.rules[0].destinations] == [("north", 4000), ("south", 6000)]
    rows = await world.rows(audit, 1, id=north.id)
    assert rows == [("published", "fencing tokens of optimizer reset: a wrong clock")]
    process.kill()
    process.start()
    freed = make(LOCAL, fencing_token=now + 1)
    await world.propose(freed)
    await world.published(freed)
