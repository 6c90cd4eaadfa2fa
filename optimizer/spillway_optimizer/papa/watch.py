"""PAPA's waiting and measuring: observes the rules in force and the latency under them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from redis.asyncio import Redis
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile, Guardrails

from spillway_optimizer import ProblemError
from spillway_optimizer.clients import hot
from spillway_optimizer.clients.lease import Lease
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.papa.observe import Measurement, Sample, expected, measure, sample
from spillway_optimizer.policies import MINIMISING
from spillway_optimizer.problem.rules import Rules, changed
from spillway_optimizer.process.states import States
from spillway_optimizer.service.config import Papa
from spillway_optimizer.service.reading import Reader

_SAMPLE_S = 1.0
_IN_FORCE_TIMEOUT_S = 15.0


class Interrupted(Exception):
    """The condition of a wait or measurement no longer holds. The message says why."""


class Watch:
    """Waits and measures. Every wait renews the lease.

    Every wait ends with Interrupted if the lease is lost or the process stops.
    """

    def __init__(
        self,
        settings: Papa,
        topology: Topology,
        redis: Redis,
        reader: Reader,
        lease: Lease,
        stop: asyncio.Event,
        file: GuardrailFile,
        states: States,
    ):
        self._file, self._states = file, states
        self._settings, self._topology, self._redis = settings, topology, redis
        self._reader, self._lease, self._stop = reader, lease, stop
        self._clusters = tuple(cluster.name for cluster in topology.clusters)

    async def complete(self, last_rules: Rules | None = None, settled: bool = True) -> InForce:
        """Returns the rules in force of all clusters, of a policy that minimises the objective.

        With `settled`, the rules have not changed for tau, or are the same as `last_rules`. Raises
        Interrupted otherwise.
        """
        in_force = await hot.in_force(self._redis, self._clusters)
        if in_force is None or set(in_force.versions) != set(self._clusters):
            raise Interrupted("rules in force are not complete")
        policies = {in_force.policy, *(ruleset.policy for ruleset in in_force.rulesets.values())}
        if not policies <= MINIMISING:
            raise Interrupted(f"the policy in force is {in_force.policy!r}")
        if settled and (last_rules is None or changed(last_rules, in_force.rules)):
            # The optimizer changed rules. Give the change tau to take effect before judging its
            # predictions.
            await self.settle(self._settings.tau_s)
            now = await hot.in_force(self._redis, self._clusters)
            if now is None or changed(now.rules, in_force.rules):
                raise Interrupted("rules are still changing")
            return now
        return in_force

    async def measure(self, in_force: InForce) -> Measurement:
        """Takes one sample in each of `windows` windows.

        Raises Interrupted as `samples` does.
        """
        found: list[Sample] = []
        async for window_sample in self.samples(in_force, self._settings.windows):
            found.append(window_sample)
        return measure(found, expected(in_force))

    async def samples(self, in_force: InForce, windows: int) -> AsyncIterator[Sample]:
        """Yields one sample at the end of each window.

        Boards are means over about the length of a window, so samples do not overlap. A window
        without a sound sample is skipped. Raises Interrupted if others change the rules or the
        guardrails meanwhile, or if no window had a sound sample.
        """
        why, sound = "no telemetry", False
        for _ in range(windows):
            await self._window(in_force)
            telemetry = await self._reader.read()
            if telemetry is None:
                continue
            try:
                now = await self._unchanged(in_force)
                at, most_s = time.time(), self._settings.board_max_age_s
                yield sample(telemetry, now, self._topology, at, most_s, self._guardrails())
                sound = True
            except ProblemError as error:
                why = str(error)
        if not sound:
            raise Interrupted(why)

    async def _window(self, in_force: InForce) -> None:
        deadline = time.monotonic() + self._settings.window_s
        while (left := deadline - time.monotonic()) > 0:
            await self._hold_on(min(_SAMPLE_S, left))
            await self._unchanged(in_force)

    async def _unchanged(self, in_force: InForce) -> InForce:
        """Returns the rules in force. Raises Interrupted if others changed them."""
        now = await hot.in_force(self._redis, self._clusters)
        if now is None or now.policy != in_force.policy:
            raise Interrupted("superseded: others changed the policy")
        if others := changed(in_force.rules, now.rules):
            raise Interrupted(f"superseded: others changed {len(others)} rules")
        return now

    def _guardrails(self) -> Guardrails:
        """Returns the guardrails.

        Raises Interrupted if they have changed, because samples at other values have another unit.
        """
        if guardrails.changed(self._file, self._states):
            raise Interrupted("the guardrails have changed")
        return self._file.current

    async def until(self, arrived: Callable[[InForce], bool]) -> InForce:
        """Returns the first ruleset in force that satisfies `arrived`.

        Raises Interrupted after _IN_FORCE_TIMEOUT_S.
        """
        deadline = time.monotonic() + _IN_FORCE_TIMEOUT_S
        while time.monotonic() < deadline:
            await self._hold_on()
            in_force = await hot.in_force(self._redis, self._clusters)
            if in_force is not None and arrived(in_force):
                return in_force
        raise Interrupted("superseded: the publisher did not publish the step")

    async def settle(self, seconds: float) -> None:
        """Waits for a change to take effect."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self._hold_on()

    async def _hold_on(self, seconds: float = _SAMPLE_S) -> None:
        """Waits and renews the lease.

        Raises Interrupted if the process stops or the lease is lost.
        """
        if await self.pause(seconds):
            raise Interrupted("stopping")
        if not await self._lease.hold():
            raise Interrupted("the lease was lost")

    async def pause(self, seconds: float) -> bool:
        """Waits for `seconds` or until the process stops. Returns whether to stop."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return False
        return True
