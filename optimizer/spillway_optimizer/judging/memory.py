"""What a leader remembers of its proposals, and when a change is more than noise. Pure."""

from dataclasses import dataclass, replace

from spillway_optimizer.problem.rules import TOTAL, Rules, max_difference


@dataclass(frozen=True)
class Memory:
    """What this leader has proposed; empty at start."""

    policy: str | None = None
    own: Rules | None = None  # the last solution proposed
    intended: Rules | None = None  # what should be in force: own, or PAPA's change of it
    published_at: float = 0.0  # Unix seconds
    before: Rules | None = None  # the solution proposed before `own`
    pending: Rules | None = None  # a solution that would pay, and waits to be seen again
    pending_at: float = 0.0  # Unix seconds, when it was seen first
    base: int = 0  # version in force when these rules were proposed: what PAPA changed later is not in them


@dataclass(frozen=True)
class Thresholds:
    min_weight_change: int = 200  # parts of 10 000
    min_gain: float = 0.001  # relative, by the objective; only for policies that minimise it
    renew_s: float = 15.0
    sure_gain: float = 0.01  # from here on one solve is enough, unless it takes the last change back
    hold_s: float = 4.0  # what takes the last change back must have lasted so long

    def in_steps(self, max_shift: float) -> "Thresholds":
        """As they must be when a solution may move only `max_shift` of a route: a step is as good a reason as
        the whole way is without them."""
        if max_shift >= 1:
            return self
        step = max(0, round(max_shift * TOTAL) - 1)
        return replace(
            self,
            min_weight_change=min(self.min_weight_change, step),
            min_gain=self.min_gain * max_shift,
            sure_gain=self.sure_gain * max_shift,
        )


def due(memory: Memory, thresholds: Thresholds, now: float) -> bool:
    """Also when the clock was set back."""
    return not 0 <= now - memory.published_at < thresholds.renew_s


def pending(memory: Memory, candidate: Rules, moved: int, now: float) -> Memory:
    """What was pending already goes on being so, since when it was."""
    if memory.pending is not None and difference(memory.pending, candidate) < moved:
        return replace(memory, pending=candidate)
    return replace(memory, pending=candidate, pending_at=now)


def takes_back(memory: Memory, candidate: Rules, moved: int) -> bool:
    return memory.before is not None and difference(memory.before, candidate) < moved


def confirmed(
    memory: Memory, candidate: Rules, moved: int, sure: bool, thresholds: Thresholds, now: float
) -> bool:
    """Whether one solve is enough, or those before said the same."""
    back = takes_back(memory, candidate, moved)
    if sure and not back:
        return True
    seen = memory.pending is not None and difference(memory.pending, candidate) < moved
    return seen and not (back and 0 <= now - memory.pending_at < thresholds.hold_s)


def difference(own: Rules, candidate: Rules) -> int:
    """Over routes of both; routes that went away are no reason to act."""
    common = own.keys() & candidate.keys()
    return max_difference({k: own[k] for k in common}, {k: candidate[k] for k in common})
