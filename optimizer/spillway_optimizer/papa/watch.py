"""PAPA's waiting and measuring: observes the rules in force and the latency under them."""

from collections.abc import AsyncIterator, Callable, Sequence

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile, Guardrails

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.inputs.guardrails import Follower
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.papa.mesh import Interrupted, Waiting
from spillway_optimizer.papa.observe import Measurement, Sample, measure, sample, steady
from spillway_optimizer.policies import ADJUSTED
from spillway_optimizer.problem.rules import Rules, changed
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning

_SAMPLE_S = 1.0
_IN_FORCE_TIMEOUT_S = 15.0
_PATIENCE = 3  # times the windows of a measurement, if performance jumps during it


class Watch:
    """Waits and measures. Every wait renews the lease.

    Every wait ends with Interrupted if the lease is lost or the process stops.
    """

    def __init__(
        self,
        settings: PapaTuning,
        topology: Topology,
        mesh: Waiting,
        file: GuardrailFile | Follower,
        states: States,
    ):
        self._settings, self._topology, self._mesh = settings, topology, mesh
        self._file, self._states = file, states
        self._clusters = tuple(cluster.name for cluster in topology.clusters)

    async def complete(self, last_rules: Rules | None = None, settled: bool = True) -> InForce:
        """Returns the rules in force of all clusters, of a policy whose rules PAPA adjusts.

        With `settled`, the rules have not changed for tau, or are the same as `last_rules`. Raises
        Interrupted otherwise.
        """
        in_force = await self._mesh.in_force()
        if in_force is None or set(in_force.versions) != set(self._clusters):
            raise Interrupted("rules in force are not complete")
        policies = {in_force.policy, *(ruleset.policy for ruleset in in_force.rulesets.values())}
        if not policies <= ADJUSTED:
            raise Interrupted(f"the policy in force is {in_force.policy!r}")
        if settled and (last_rules is None or changed(last_rules, in_force.rules)):
            # The optimizer changed rules. Give the change tau to take effect before judging its
            # predictions.
            await self.settle(self._settings.tau_s)
            now = await self._mesh.in_force()
            if now is None or changed(now.rules, in_force.rules):
                raise Interrupted("rules are still changing")
            return now
        return in_force

    async def measure(self, in_force: InForce) -> Measurement:
        """Takes one sample in each of `windows` windows, all of them since the last jump.

        Raises Interrupted as `samples` does.
        """
        found: Sequence[Sample] = []
        async for window_sample in self.samples(in_force, _PATIENCE * self._settings.windows):
            found = steady([*found, window_sample], self._settings.delta_perf)
            if len(found) == self._settings.windows:
                break
        return measure(found)

    async def samples(self, in_force: InForce, windows: int) -> AsyncIterator[Sample]:
        """Yields one sample at the end of each window.

        Boards are means over about the length of a window, so samples do not overlap. A window
        without a sound sample is skipped. Raises Interrupted if others change the rules or the
        guardrails meanwhile, or if no window had a sound sample.
        """
        why, sound = "no telemetry", False
        for _ in range(windows):
            await self._window(in_force)
            telemetry = await self._mesh.telemetry()
            if telemetry is None:
                continue
            try:
                now = await self._unchanged(in_force)
                at, most_s = self._mesh.now(), self._settings.board_max_age_s
                yield sample(telemetry, now, self._topology, at, most_s, self._guardrails())
                sound = True
            except ProblemError as error:
                why = str(error)
        if not sound:
            raise Interrupted(why)

    async def _window(self, in_force: InForce) -> None:
        deadline = self._mesh.elapsed() + self._settings.window_s
        while (left := deadline - self._mesh.elapsed()) > 0:
            await self._hold_on(min(_SAMPLE_S, left))
            await self._unchanged(in_force)

    async def _unchanged(self, in_force: InForce) -> InForce:
        """Returns the rules in force. Raises Interrupted if others changed them."""
        now = await self._mesh.in_force()
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
        deadline = self._mesh.elapsed() + _IN_FORCE_TIMEOUT_S
        while self._mesh.elapsed() < deadline:
            await self._hold_on()
            in_force = await self._mesh.in_force()
            if in_force is not None and arrived(in_force):
                return in_force
        raise Interrupted("superseded: the publisher did not publish the step")

    async def settle(self, seconds: float) -> None:
        """Waits for a change to take effect."""
        deadline = self._mesh.elapsed() + seconds
        while self._mesh.elapsed() < deadline:
            await self._hold_on()

    async def _hold_on(self, seconds: float = _SAMPLE_S) -> None:
        """Waits and renews the lease.

        Raises Interrupted if the process stops or the lease is lost.
        """
        if await self._mesh.pause(seconds):
            raise Interrupted("stopping")
        if not await self._mesh.hold():
            raise Interrupted("the lease was lost")
