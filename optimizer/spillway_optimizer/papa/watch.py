"""PAPA's waiting and measuring: rules in force over time, and what users feel under them."""

import asyncio
import time
from collections.abc import Callable

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer import ProblemError, hot
from spillway_optimizer.config import Papa
from spillway_optimizer.hot import InForce
from spillway_optimizer.lease import Lease
from spillway_optimizer.papa.observe import Measurement, Sample, expected, measure, sample
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.reading import Reader
from spillway_optimizer.rules import Rules

_SAMPLE_S = 1.0
_IN_FORCE_TIMEOUT_S = 15.0


class Interrupted(Exception):
    """What was being waited for or measured no longer holds; the message says why."""


class Watch:
    """Every wait keeps the lease, and ends with Interrupted when it is lost or the process stops."""

    def __init__(
        self, settings: Papa, topology: Topology, redis, reader: Reader, lease: Lease, stop: asyncio.Event
    ):
        self._settings, self._topology, self._redis = settings, topology, redis
        self._reader, self._lease, self._stop = reader, lease, stop
        self._clusters = tuple(cluster.name for cluster in topology.clusters)

    async def complete(self, last_rules: Rules | None = None, settled: bool = True) -> InForce:
        """Rules of all clusters, of the policy that PAPA works for; with `settled`, unchanged for tau or the
        same as `last_rules`."""
        in_force = await hot.in_force(self._redis, self._clusters)
        if in_force is None or set(in_force.versions) != set(self._clusters):
            raise Interrupted("rules in force are not complete")
        if in_force.policy != SPILLWAY or any(r.policy != SPILLWAY for r in in_force.rulesets.values()):
            raise Interrupted(f"the policy in force is {in_force.policy!r}")
        if settled and last_rules != in_force.rules:
            # The optimizer moved: give it tau to take effect before judging its predictions.
            await self.settle(self._settings.papa_tau_s)
            now = await hot.in_force(self._redis, self._clusters)
            if now is None or now.rules != in_force.rules:
                raise Interrupted("rules are still changing")
            return now
        return in_force

    async def measure(self, in_force: InForce) -> Measurement:
        """Samples for tau. Raises Interrupted when the rules change meanwhile, or nothing sound is seen."""
        samples: list[Sample] = []
        deadline = time.monotonic() + self._settings.papa_tau_s
        why = "no telemetry"
        while time.monotonic() < deadline:
            await self._hold_on()
            now = await hot.in_force(self._redis, self._clusters)
            if now is None or now.rules != in_force.rules or now.policy != in_force.policy:
                raise Interrupted("superseded: others changed the rules")
            telemetry = await self._reader.read()
            try:
                if telemetry is not None:
                    at = time.time()
                    samples.append(
                        sample(telemetry, now, self._topology, at, self._settings.papa_board_max_age_s)
                    )
                    in_force = now
            except ProblemError as error:
                why = str(error)
        if not samples:
            raise Interrupted(why)
        return measure(samples, expected(in_force))

    async def until(self, arrived: Callable[[InForce], bool]) -> InForce:
        """The ruleset in force that fulfils `arrived`; Interrupted after a while."""
        deadline = time.monotonic() + _IN_FORCE_TIMEOUT_S
        while time.monotonic() < deadline:
            await self._hold_on()
            in_force = await hot.in_force(self._redis, self._clusters)
            if in_force is not None and arrived(in_force):
                return in_force
        raise Interrupted("superseded: the publisher did not publish the step")

    async def settle(self, seconds: float) -> None:
        """Lets a change take effect."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self._hold_on()

    async def _hold_on(self) -> None:
        """One sampling interval; keeps the lease. Raises Interrupted when leading or running ends."""
        if await self.pause(_SAMPLE_S):
            raise Interrupted("stopping")
        if not await self._lease.hold():
            raise Interrupted("the lease was lost")

    async def pause(self, seconds: float) -> bool:
        """Whether to stop."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return False
        return True
