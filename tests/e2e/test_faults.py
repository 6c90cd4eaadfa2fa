"""Killing any one part fails no request, and the loop closes again after its restart."""

import contextlib
import time

import httpx
import pytest
from loop_harness import Background, Loop, Placements

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Long enough that every retry and every health check notices the absence.
_AWAY_S = 6.0
_LOAD_S = 50.0


def kill_under_load(loop: Loop, process: str) -> None:
    """kill -9 under load, some seconds of absence, restart; asserts what every fault test asserts."""
    supervisor = loop.stack.supervisor
    assert process in supervisor.processes(), f"no process {process!r} in the stack"
    background = Background(loop.stack, f"kill-{process}", _LOAD_S)
    time.sleep(6)
    before = supervisor.processes()[process]
    supervisor.kill(process)
    # Asked in the moment of a process's death, the supervisor waits some seconds for an end that it has seen: 400.
    with contextlib.suppress(httpx.HTTPStatusError):
        supervisor.stop_process(process)
    time.sleep(_AWAY_S)
    assert not supervisor.processes()[process].ready, f"{process} was to be away"
    supervisor.start_process(process)
    restarted = time.time()
    loop.closed_since(restarted + 3)
    assert supervisor.processes()[process].pid != before.pid
    samples = background.samples()
    failed = len(samples) - int(samples.ok.sum())
    assert failed == 0, f"{failed} of {len(samples)} requests failed: {set(samples.reason[~samples.ok])}"


def test_relay_killed(loop: Loop):
    """Each of a cluster's relays in turn: its Envoys go to the other one and stay placed meanwhile."""
    for relay in loop.stack.relays(loop.stack.scenario.clusters[0]):
        with Placements(loop.stack) as placements:
            kill_under_load(loop, relay)
        assert placements.samples and placements.least == placements.expected()


def test_nats_killed(loop: Loop):
    """Rules stay in force while the bus is away; proposals flow again after it."""
    kill_under_load(loop, "nats")


def test_kafka_killed(loop: Loop):
    """Collectors queue to disk while Kafka is away; streams go on after it."""
    kill_under_load(loop, "kafka")


def test_redis_killed(loop: Loop):
    """Hot state is rebuilt after Redis has lost it."""
    kill_under_load(loop, "redis")


def test_optimizer_killed(loop: Loop):
    """The last ruleset stays in force without an optimizer, and a new one proposes again."""
    kill_under_load(loop, "optimizer")


def test_collector_killed(loop: Loop):
    """Envoy drops spans, not requests, without a collector; spans arrive again after it."""
    kill_under_load(loop, f"collector-{loop.stack.scenario.clusters[0]}")
