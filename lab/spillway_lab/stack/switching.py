"""Brings a running stack under a policy: the optimizer's, PAPA, new curves, and who balances."""

import time
from collections.abc import Callable

from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.variants import VARIANTS, Variant
from spillway_lab.stack import balancing, periods
from spillway_lab.stack.control import Control, InForce
from spillway_lab.stack.stack import LabStack

# A guard, not a claim: after an overload the pipeline may have to catch up first.
POLICY_S = 240.0
# Between two rounds of one policy of the optimizer. What PAPA has changed in the first must not be
# in force in the second, and no cluster may be overloaded meanwhile.
_BETWEEN = "waterfall"
_PAPA, _CURVES = "papa", ("streams-curves", "streams-all", "streams")  # names of processes
_READY_S = 60.0

Show = Callable[[str], None]


class Switching:
    """What is in force in one stack, and what has to change for the next policy."""

    def __init__(self, running: LabStack, control: Control) -> None:
        self._running, self._control = running, control
        self._now = Variant()  # until the first round; the processes are in its state
        self._callers = balancing.callers(running.scenario, running.plan.pods)

    def bring(self, policy: str, show: Show) -> InForce:
        """Brings the policy into force at every Envoy, and returns its first ruleset.

        Raises LabError if that takes more than POLICY_S seconds.
        """
        wanted = VARIANTS[policy]
        # Weights that Envoys ignore overload no cluster. So Envoys take over first, and give back
        # last.
        if wanted.by_envoy:
            balancing.to_envoys(self._running.run, self._callers)
        if wanted.optimizer == self._now.optimizer and wanted.optimizer != _BETWEEN:
            self._follow(_BETWEEN, show)
        if wanted.papa != self._now.papa:
            change = (
                self._running.supervisor.start_process
                if wanted.papa
                else self._running.supervisor.stop_process
            )
            change(_PAPA)
        if wanted.frozen_curves != self._now.frozen_curves:
            self._freeze(wanted.frozen_curves, show)
        self._now = wanted
        first = self._follow(wanted.optimizer, show)
        if not wanted.by_envoy:
            balancing.to_relays(self._running.run, self._callers)
        return first

    def _follow(self, policy: str, show: Show) -> InForce:
        self._control.set_policy(policy)
        return self._control.wait_policy(policy, POLICY_S, show)

    def _freeze(self, frozen: bool, show: Show) -> None:
        """Restarts the job of the curves with, or without, a first fit that comes too late."""
        text = periods.settings(self._running.time_scale, frozen)
        self._running.streams_settings.write_text(text)
        processes = self._running.supervisor.processes()
        name = next(name for name in _CURVES if name in processes)
        before = processes[name].pid
        self._running.supervisor.restart_process(name)
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            now = self._running.supervisor.processes()[name]
            if now.pid != before and now.ready:
                return
            show(f"waiting for {name}, which starts again")
            time.sleep(0.5)
        raise LabError(f"{name} did not start again within {_READY_S:.0f} s")
