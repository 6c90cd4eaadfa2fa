"""When to solve: every period, and at once after a change. Pure.

Times are in seconds of one clock that nobody sets.
"""

import math

from spillway_optimizer.inputs.telemetry import Pulse
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.triggers import REGULAR, Basis, Trigger, urgent


class Schedule:
    """Its state: when to solve next, the inputs of the last solve, and a change since then."""

    def __init__(self, settings: OptimizerTuning):
        self._settings = settings
        self._free_at = 0.0
        self.forget()

    def forget(self) -> None:
        """Drops the last solve, as at the start of the process."""
        self._basis: Basis | None = None
        self._basis_at = -math.inf
        self._due_at = 0.0
        self._pressing: Trigger | None = None  # noticed, but not acted upon yet

    def trigger(self, pulse: Pulse, policy: str, guardrails_changed: bool, now: float) -> Trigger | None:
        """Returns why to solve now, or None.

        An urgent reason waits only for the minimum interval after the last urgent solve.
        """
        change, since_s = self._settings.load_change, now - self._basis_at
        found = urgent(self._basis, pulse, policy, guardrails_changed, change, since_s)
        # A changed file is reported only once, so keep it. A load that returned to its old value
        # needs no solve any more.
        if found is not None or self._pressing is None or self._pressing.kind != "guardrails":
            self._pressing = found
        if self._pressing is not None and now >= self._free_at:
            return self._pressing
        if now >= self._due_at:
            return Trigger("start" if self._basis is None else "period")
        return None

    def begun(self, now: float) -> None:
        """Records that a solve begins."""
        self._due_at = now + self._settings.period_s

    def solved(self, trigger: Trigger, basis: Basis | None, started: float, ended: float) -> None:
        """Records its end. `basis` None: nothing was published, and an urgent reason remains."""
        if basis is not None:
            self._basis, self._basis_at = basis, started
            if trigger is self._pressing:
                self._pressing = None
        # A slow solver is not started again at once, whatever changes. A regular solve is not the
        # answer to a change that comes after it, so only urgent ones have a minimum interval.
        least_s = 0.0 if trigger.kind in REGULAR else self._settings.min_interval_s
        self._free_at = ended + max(least_s, ended - started)

    def rest_s(self, now: float) -> float:
        """Returns how long an urgent reason that was noticed must wait. Infinite without one."""
        return math.inf if self._pressing is None else max(self._free_at - now, 0.0)
