"""A leader's memory of its proposals, and whether a change is more than noise. Pure."""

from dataclasses import dataclass, replace

from spillway_optimizer.problem.rules import TOTAL, Rules, max_difference


@dataclass(frozen=True)
class Reversal:
    """A change, made after a jump of load, that took back the change before it."""

    at: float = 0.0  # Unix seconds; 0: long ago
    by: int = 0  # the largest weight difference


@dataclass(frozen=True)
class Memory:
    """What this leader has proposed for an application. Empty at start."""

    policy: str | None = None
    proposed: Rules | None = None  # the last solution proposed
    intended: Rules | None = None  # what should be in force: `proposed`, or PAPA's change of it
    published_at: float = 0.0  # Unix seconds
    before: Rules | None = None  # the solution proposed before `proposed`
    pending: Rules | None = None  # a solution that would gain enough, not confirmed yet
    pending_at: float = 0.0  # Unix seconds, when `pending` was first seen
    # Version in force when these rules were proposed. They do not contain later changes by PAPA.
    base: int = 0
    reversal: Reversal = Reversal()  # the last one

    def proposing(
        self, policy: str | None, proposed: Rules, intended: Rules, now: float, before: Rules | None
    ) -> "Memory":
        """Returns the memory once these rules are proposed. Nothing is pending then."""
        return Memory(policy, proposed, intended, now, before, reversal=self.reversal)


@dataclass(frozen=True)
class Thresholds:
    """What a change must reach before it is proposed."""

    min_weight_change: int = 200  # parts of 10 000
    min_gain: float = 0.001  # relative to the objective; only for policies that minimise it
    renew_s: float = 15.0
    # A relative gain of this size needs one solve only, unless it reverts the last change.
    sure_gain: float = 0.01
    # A reversal of the last change must have persisted this long, in seconds. After a jump of load,
    # the last such reversal must be so long ago instead, unless it was less than half as large.
    hold_s: float = 4.0

    def in_steps(self, max_shift: float) -> "Thresholds":
        """Scales the thresholds for solutions that may move only `max_shift` of a route at once.

        A step then counts as much as the whole way does without this limit.
        """
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
    """Returns whether a renewal is due. True also if the clock was set back since the last one."""
    return not 0 <= now - memory.published_at < thresholds.renew_s


def pending(memory: Memory, candidate: Rules, moved: int, now: float) -> Memory:
    """Returns the memory with `candidate` pending.

    If a similar candidate was pending already, the time when it was first seen is kept. `moved`:
    the largest weight difference between the rules proposed last and `candidate`.
    """
    if memory.pending is not None and difference(memory.pending, candidate) < moved:
        return replace(memory, pending=candidate)
    return replace(memory, pending=candidate, pending_at=now)


def takes_back(memory: Memory, candidate: Rules, moved: int) -> bool:
    """Returns whether `candidate` reverts the last change.

    It does if it is closer to the rules before that change than to those proposed last. `moved`:
    its difference from the latter.
    """
    return memory.before is not None and difference(memory.before, candidate) < moved


def confirmed(
    memory: Memory,
    candidate: Rules,
    moved: int,
    sure: bool,
    thresholds: Thresholds,
    now: float,
    jumped: bool = False,
) -> bool:
    """Returns whether a change may be proposed.

    Either one solve suffices, or earlier solves gave a similar result. `sure`: the gain is large
    enough for one solve. `jumped`: the load has just changed by more than noise explains. A load
    that comes and goes then moves traffic at most once in `hold_s`. A small correction of an
    answer to a jump does not make the next jump wait.
    """
    back = takes_back(memory, candidate, moved)
    is_larger = moved > 2 * memory.reversal.by
    rested = jumped and (is_larger or not 0 <= now - memory.reversal.at < thresholds.hold_s)
    if sure and (rested or not back):
        return True
    seen = memory.pending is not None and difference(memory.pending, candidate) < moved
    return seen and not (back and 0 <= now - memory.pending_at < thresholds.hold_s)


def difference(proposed: Rules, candidate: Rules) -> int:
    """Returns the largest weight difference over the routes in both.

    Routes that disappeared are no reason to act.
    """
    common = proposed.keys() & candidate.keys()
    return max_difference({k: proposed[k] for k in common}, {k: candidate[k] for k in common})
