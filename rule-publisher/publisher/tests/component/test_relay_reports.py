"""Acknowledgements of relays become rows, and their heartbeats become placements."""

import asyncio
import time

import pytest
from proposed import SPREAD
from spillway.v1.acknowledgement_pb2 import Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component


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
