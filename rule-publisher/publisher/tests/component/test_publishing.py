"""Proposals and reports through a real publisher: the results in NATS, Redis and ClickHouse."""

import asyncio
import time
import urllib.request

import pytest
import redis
from spillway.v1.acknowledgement_pb2 import Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component

SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}
LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}
RULESET = "SELECT version, outcome, origin, policy, reason FROM rulesets WHERE ruleset_id = %(id)s"
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
    assert "rules[0].destinations: weights sum to 3, must be 10000" in reason
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


async def test_kill_switch_replaces_what_is_in_force(world, make):
    """After a restart with frozen: true, local-first is published at once, and nothing else."""
    process = world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    version = await world.published(proposal)
    process.stop()
    (world.folder / "guardrails.yaml").write_text("frozen: true")
    world.publisher(SPILLWAY_GUARDRAILS=str(world.folder / "guardrails.yaml"))

    async def frozen() -> bool:
        return (await world.value("north")).policy == "frozen" and (
            await world.value("south")
        ).policy == "frozen"

    await eventually_async(frozen, "local-first in force")
    assert not (await world.value("north")).rules and (await world.value("north")).version > version
    refused = make(SPREAD)
    await world.propose(refused)
    ((_, outcome, _, _, reason),) = await world.rows(RULESET, 1, id=refused.id)
    assert (outcome, reason.split(":")[0]) == ("refused", "frozen")


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
    guardrails.write_text("frozen: true")

    async def frozen() -> bool:
        return (await world.value("north")).policy == "frozen"

    await eventually_async(frozen, "local-first in force")


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
    assert last.version and last.policy != "frozen"


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


async def test_acknowledgements_and_heartbeats(world, make):
    """Acks become rows, and a heartbeat becomes a key that expires.

    Malformed reports are counted by reason.
    """
    process = world.publisher()
    js = await world.jetstream()
    ack = Acknowledgement(
        cluster="north", service="web", envoy=f"north/web/{world.folder.name}", ruleset_version=7
    )
    ack.outcome, ack.type_url = 2, "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    ack.detail = "weights"
    ack.at.GetCurrentTime()
    beat = Heartbeat(cluster="north", ttl_seconds=10, ruleset_version=2**53 - 1)
    beat.at.GetCurrentTime()
    beat.services.add(service="web", connected_envoys=2)
    await js.publish("spillway.acks.north", b"\xff")
    await js.publish("spillway.acks.north", ack.SerializeToString())
    await js.publish("spillway.heartbeats.south", beat.SerializeToString())
    # This is checked before the rows, which may take longer than the key lives.
    assert await placed_by_relays(world, js, beat) == [{"service": "web", "connected_envoys": 2}]
    statement = (
        "SELECT cluster, service, version, outcome, detail FROM acknowledgements WHERE envoy = %(envoy)s"
    )
    assert await world.rows(statement, 1, envoy=ack.envoy) == [("north", "web", 7, "nack", "weights")]
    await eventually_async(
        lambda: world.hot("spillway:placement:north") is None, "placement forgotten after its ttl"
    )
    counters = world.health(process)["counters"]
    assert (counters["malformed.acks.undecodable"], counters["malformed.heartbeats.subject"]) == (1, 1)
    proposal = make(SPREAD)  # the version in a heartbeat cannot use up versions
    await world.propose(proposal)
    assert await world.published(proposal) < 2**52


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


async def placed_by_relays(world, js, *beats: Heartbeat) -> list[dict]:
    """Returns the services of north's placement.

    The placement exists once the relays have reported for half a time to live.
    """

    async def reported() -> list[dict] | None:
        for beat in beats:
            beat.at.FromNanoseconds(beat.at.ToNanoseconds() + 10**9)
            await js.publish("spillway.heartbeats.north", beat.SerializeToString())
        placement = world.hot("spillway:placement:north")
        return placement and placement["services"]

    return await eventually_async(reported, "placement of north")


async def test_two_relays_place_together_also_after_a_publisher_restart(world):
    """A publisher that starts knows both relays at once, though they share a subject.

    The relays' clocks do not matter.
    """
    process = world.publisher()
    js = await world.jetstream()
    beats = [Heartbeat(cluster="north", ttl_seconds=2, relay=relay) for relay in ("relay-0", "relay-1")]
    for hours, (beat, service) in enumerate(zip(beats, ("cart", "web"), strict=True)):
        beat.at.FromNanoseconds(time.time_ns() + (2 * hours - 1) * 3600 * 10**9)
        beat.services.add(service=service, connected_envoys=1, envoys=[7])
    # This Envoy has moved from one relay to the other, and counts once.
    beats[0].services.add(service="web", connected_envoys=1, envoys=[7])
    both = [{"service": s, "connected_envoys": 1} for s in ("cart", "web")]
    assert await placed_by_relays(world, js, *beats) == both
    process.stop()
    await eventually_async(lambda: world.hot("spillway:placement:north") is None, "placement forgotten")
    process.start()
    assert await placed_by_relays(world, js, beats[0]) == both


async def test_the_minimum_local_share_is_kept_where_the_service_lives(world, make):
    """North's relay names an Envoy of the service, and later none.

    The share is kept only while there is one, or while the placement is unknown.
    """
    (world.folder / "guardrails.yaml").write_text("minimum_local_share: 1000")
    process = world.publisher(SPILLWAY_GUARDRAILS=str(world.folder / "guardrails.yaml"))
    js = await world.jetstream()
    away = {"north": {"south": 10_000}}
    beat = Heartbeat(cluster="north", ttl_seconds=2, relay="relay-0")
    beat.services.add(service="shop", connected_envoys=1, envoys=[7])

    async def split() -> dict[str, int]:
        proposal = make(away)
        await world.propose(proposal)
        await world.published(proposal)
        return {d.cluster: d.weight for d in (await world.value("north")).rules[0].destinations}

    await placed_by_relays(world, js, beat)
    assert await split() == {"north": 1000, "south": 9000}
    beat.services[0].service = "cart"

    async def moved() -> bool:
        return [s["service"] for s in await placed_by_relays(world, js, beat)] == ["cart"]

    await eventually_async(moved, "no Envoy of the service in north")
    assert await split() == {"south": 10_000}
    await eventually_async(lambda: world.hot("spillway:placement:north") is None, "placement unknown")
    assert await split() == {"north": 1000, "south": 9000}
    assert world.health(process)["status"] == 200


async def test_late_heartbeats_place_nothing(world):
    """A heartbeat older than its time to live, read at the start, is not taken as current."""
    process = world.publisher()
    process.stop()
    beat = Heartbeat(cluster="north", ttl_seconds=1)
    js = await world.jetstream()
    for _ in range(2):
        await js.publish("spillway.heartbeats.north", beat.SerializeToString())
        await asyncio.sleep(1)
    process.start()
    await eventually_async(lambda: "heartbeats.late" in world.health(process)["counters"], "counted as late")
    assert world.hot("spillway:placement:north") is None
