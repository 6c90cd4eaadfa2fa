"""Clocks that are set while the publisher runs: placements depend on when heartbeats arrived."""

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.service.reports import Reports

HOUR_S = 3600.0
ARRIVES_S = (0, 2, 4, 6, 8)  # seconds after the start


class Clock:
    """Replaces module time. `set_by` seconds are added to the wall clock only."""

    def __init__(self) -> None:
        self.passed = self.set_by = 0.0
        self._wall = time.time()

    def monotonic(self) -> float:
        return 500.0 + self.passed

    def time(self) -> float:
        return self._wall + self.passed + self.set_by


class Placements:
    """Replaces Redis."""

    def __init__(self) -> None:
        self.placed: dict[str, tuple[Heartbeat, float]] = {}

    def place(self, placement: Heartbeat, until: float) -> None:
        self.placed[placement.cluster] = placement, until


class Consumer:
    """Delivers what `deliver` was given. `server` is the clock of NATS."""

    def __init__(self, server) -> None:
        self._server, self._queue, self._sequence = server, asyncio.Queue(), 0

    def deliver(self, heartbeat: Heartbeat, age_s: float = 0.0, pending: int = 0) -> None:
        self._sequence += 1
        metadata = SimpleNamespace(
            timestamp=datetime.fromtimestamp(self._server() - age_s, UTC),
            num_delivered=1,
            num_pending=pending,
            sequence=SimpleNamespace(stream=self._sequence),
        )
        done = asyncio.Event()

        async def settle() -> None:
            done.set()

        self._queue.put_nowait(
            SimpleNamespace(
                data=heartbeat.SerializeToString(),
                subject="spillway.heartbeats.north",
                metadata=metadata,
                ack=settle,
                term=settle,
            )
        )

    async def fetch(self, count: int, timeout: float):
        return [await self._queue.get()]

    async def consumer_info(self):
        return SimpleNamespace(created=datetime.fromtimestamp(self._server(), UTC))


def beat(sent: float, **envoys: list[int]) -> Heartbeat:
    message = Heartbeat(cluster="north", ttl_seconds=10, relay="a", ruleset_version=7)
    message.at.FromMicroseconds(int(sent * 1e6))
    for service, hashes in envoys.items():
        message.services.add(service=service, envoys=hashes, connected_envoys=len(hashes))
    return message


@pytest.fixture
async def world(monkeypatch):
    """A publisher's reports, with a NATS server whose clock is right."""
    clock, redis, telemetry = Clock(), Placements(), Telemetry()
    right = time.time()
    monkeypatch.setattr("spillway_publisher.service.reports.time", clock)
    consumer = Consumer(lambda: right + clock.passed)
    reports = Reports({"north"}, redis, None, telemetry)
    running = []

    async def arrive(heartbeat: Heartbeat, **more: float) -> None:
        if not running:
            running.append(asyncio.create_task(reports.heartbeats(consumer)))
        consumer.deliver(heartbeat, **more)
        for _ in range(10):
            await asyncio.sleep(0)

    yield SimpleNamespace(
        clock=clock, redis=redis, telemetry=telemetry, reports=reports, arrive=arrive, right=right
    )
    running[0].cancel()


@pytest.mark.parametrize("set_by", [-HOUR_S, HOUR_S, -30.0])
async def test_a_publishers_clock_that_is_set_changes_no_placement(world, set_by):
    """Heartbeats still count at once, none is late, and earlier ones last as long as before."""
    for at in ARRIVES_S:
        world.clock.passed = at
        world.clock.set_by = set_by if at > 6 else 0.0
        await world.arrive(beat(world.right + at, web=[1], **({"cart": [2]} if at == 4 else {})))
    placement, until = world.redis.placed["north"]
    assert {s.service for s in placement.services} == {"web", "cart"}
    assert until == world.clock.monotonic() + 10
    assert world.telemetry.counters == {"heartbeats": len(ARRIVES_S)}
    assert world.telemetry.relays["north"]["a"] == pytest.approx(world.clock.time())


@pytest.mark.parametrize("set_by", [0.0, -HOUR_S, HOUR_S])
async def test_a_publisher_that_starts_reckons_stored_heartbeats_by_the_servers_clock(world, set_by):
    """What was stored 41 s ago counts as 41 s old, whatever the publisher's clock shows."""
    world.clock.set_by = set_by
    for age_s in range(41, 0, -2):
        services = {"web": [1], **({"cart": [2]} if age_s == 41 else {})}
        await world.arrive(beat(world.right - age_s, **services), age_s=age_s, pending=age_s // 2)
    placement, until = world.redis.placed["north"]
    assert {s.service for s in placement.services} == {"web"}
    assert until == pytest.approx(world.clock.monotonic() - 1 + 10)


async def test_heartbeats_that_come_again_change_nothing(world):
    """It holds for an old heartbeat at any time, and for the newest any number of times."""
    old = beat(world.right, cart=[2])
    await world.arrive(old)
    for at in (2, 4, 6, 8, 10, 12, 14):
        world.clock.passed = at
        last = beat(world.right + at, web=[1])
        await world.arrive(last)
        await world.arrive(old)
        await world.arrive(last)
    placement, _ = world.redis.placed["north"]
    assert {s.service for s in placement.services} == {"web"}
    for at in range(15, 60, 3):
        world.clock.passed = at
        await world.arrive(old)
        await world.arrive(last)
    assert world.redis.placed["north"] == (placement, 500 + 14 + 10)


@pytest.mark.parametrize("set_by", [-HOUR_S, HOUR_S])
async def test_a_relays_clock_that_is_set_takes_no_envoy_away(world, set_by):
    """The relay's heartbeats count again before earlier ones lapse, so the placement stays."""
    for at in range(0, 40, 2):
        if at > 8:
            _, until = world.redis.placed["north"]
            assert until > world.clock.monotonic() + 2
        world.clock.passed = at
        await world.arrive(beat(world.right + at + (set_by if at > 6 else 0.0), web=[1]))
    placement, until = world.redis.placed["north"]
    assert until == world.clock.monotonic() + 10
    assert {s.service for s in placement.services} == {"web"}
