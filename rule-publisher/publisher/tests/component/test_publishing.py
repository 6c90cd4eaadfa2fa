"""Proposals through a real publisher: the results in NATS, Redis and ClickHouse."""

import urllib.request

import pytest
import redis
from proposed import LOCAL, RULESET, SPREAD
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component

RULES = """SELECT version, source_cluster, destination_cluster, weight, class, reason FROM rules
           WHERE ruleset_id = %(id)s ORDER BY source_cluster, destination_cluster"""


async def test_a_proposal_reaches_every_key_redis_and_clickhouse(world, make):
    """One proposal gives a slice per cluster, the in_force keys, and the audit rows."""
    world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    version = await world.published(proposal)
    north, south, island = [await world.value(c) for c in ("north", "south", "island")]
    assert [len(r.rules) for r in (north, south, island)] == [1, 1, 0]
    assert list(island.traffic_classes) == list(proposal.traffic_classes)
    hot = await eventually_async(lambda: world.hot("spillway:ruleset:north"), "in_force of north")
    assert (hot["version"], hot["input_window"]["id"], len(hot["rules"])) == (str(version), "w-1", 1)
    assert await world.rows(RULESET, 1, id=proposal.id) == [
        (version, "published", "optimizer", "spillway", "")
    ]
    assert await world.rows(RULES, 3, id=proposal.id) == [
        (version, "north", "north", 4000, "shop GET /items/{id}", "cheapest"),
        (version, "north", "south", 6000, "shop GET /items/{id}", "cheapest"),
        (version, "south", "south", 10_000, "shop GET /items/{id}", "cheapest"),
    ]


async def test_the_bucket_can_be_read_by_key_alone_also_one_from_before(world):
    """Relays may read only their own key, with a direct read.

    A bucket of an earlier version is changed to allow that.
    """
    js = await world.jetstream()
    await js.create_key_value(bucket="spillway_rulesets", history=64)
    assert not (await js.stream_info("KV_spillway_rulesets")).config.allow_direct
    world.publisher()
    assert (await js.stream_info("KV_spillway_rulesets")).config.allow_direct


async def test_bad_proposals_are_refused_with_their_reason_and_the_next_is_published(world, make):
    """Undecodable bytes and a broken contract stop nothing. Both are recorded with the key."""
    process = world.publisher()
    broken, good = make({"north": {"north": 1, "atlantis": 2}}), make(SPREAD)
    await world.propose(b"\xff\xffnot a ruleset")
    await world.propose(broken)
    await world.propose(good)
    await world.published(good)
    ((version, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=broken.id)
    assert (version, outcome) == (0, "refused")
    assert (
        "rules[0].destinations[1].cluster: unknown cluster 'atlantis'; clusters: island, north, south"
        in reason
    )
    assert "rules[0].destinations: weights sum to 3; must be 10000" in reason
    undecodable = (
        "SELECT reason FROM rulesets WHERE ruleset_id = '' AND position(reason, 'does not decode') > 0"
    )
    assert "spillway.proposals.optimizer sequence 1" in (await world.rows(undecodable, 1))[0][0]
    await world.rows(RULESET, 1, id=good.id)
    counters = world.health(process)["counters"]
    assert (
        counters["malformed.proposal"],
        counters["proposals.refused"],
        counters["proposals.published"],
    ) == (1, 2, 1)
    with urllib.request.urlopen(process.url.replace("/readyz", "/metrics"), timeout=30) as answer:
        metrics = answer.read().decode()
    assert 'spillway_publisher_refused_proposals_total{by="contract"} 1.0' in metrics
    assert 'spillway_publisher_refused_proposals_total{by="undecodable"} 1.0' in metrics
    assert 'spillway_publisher_ruleset_version{cluster="north"}' in metrics


async def test_a_step_of_papa_changes_its_rule_alone_and_nobody_undoes_it_unread(world, make):
    """The proposal is partial, so the other rule stays.

    The optimizer then proposes a renewal. With the earlier base version it is refused, and the
    audit names rule, version and origin. With the version in Redis it is published.
    """
    process = world.publisher()
    first = make(SPREAD)
    await world.propose(first)
    read = await world.published(first)
    step = make(
        {"north": {"north": 4500, "south": 5500}}, origin=2, base_version=read, partial=True, policy=""
    )
    await world.propose(step, "papa")
    version = await world.published(step)
    north, south = await world.value("north"), await world.value("south")
    assert (north.rules[0].changed_version, north.rules[0].changed_by) == (version, 2)
    assert (south.rules[0].changed_version, south.policy) == (read, "spillway")
    late = make(SPREAD, base_version=read)
    await world.propose(late)
    ((_, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=late.id)
    assert outcome == "refused" and f"was changed in version {version} by ORIGIN_PAPA" in reason
    assert world.health(process)["counters"]["refused.base"] == 1
    hot = await eventually_async(lambda: world.hot("spillway:ruleset:north"), "in_force of north")
    again = make(SPREAD, base_version=int(hot["version"]))
    await world.propose(again)
    await world.published(again)


async def test_the_same_ruleset_twice_is_published_once(world, make):
    """Sent again without a message id, past NATS's deduplication, it gets no second version."""
    process = world.publisher()
    first, last = make(SPREAD), make(SPREAD)
    await world.propose(first)
    await world.propose(first)
    await world.propose(last)
    await world.published(last)
    assert world.health(process)["counters"]["proposals.duplicate"] == 1
    versions = "SELECT DISTINCT version FROM rulesets WHERE ruleset_id IN %(ids)s"
    assert len(await world.rows(versions, 2, ids=(first.id, last.id))) == 2
    assert len(await world.rows(RULESET, 1, id=first.id)) == 1


async def test_after_redis_was_flushed_nobody_starts_from_nothing(world, make):
    """A proposer that reads an empty Redis names base version 0.

    The bucket still has the ruleset, so the proposal is refused with the version in force. Redis
    has that version again within a period, and a proposal from it is published.
    """
    world.publisher()
    first, late = make(SPREAD, base_version=0), make(LOCAL, base_version=0)
    await world.propose(first)
    version = await world.published(first)
    redis.Redis.from_url(world.redis.url).flushall()
    await world.propose(late)
    refused = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    why = f"base_version: 0; version {version} is in force: read it and propose again"
    assert await world.rows(refused, 1, id=late.id) == [("refused", why)]
    hot = await eventually_async(lambda: world.hot("spillway:ruleset:north"), "what is in force, in Redis", 5)
    again = make(LOCAL, base_version=int(hot["version"]))
    await world.propose(again)
    assert await world.published(again) > version
