"""Decides whether to solve before the period ends. Pure.

A solve is based on demand, placement, guardrails and a policy. If one of them changes, waiting for
the end of the period would keep rules that are known to be wrong.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spillway_optimizer.inputs.smoothing import Rates
from spillway_optimizer.inputs.telemetry import Pulse
from spillway_optimizer.inputs.unknown import NOTHING, Unknown, of

# A board's rate is a count over this window. Requests arrive at random, so the standard deviation
# of the rate is sqrt(rate / window).
BOARD_WINDOW_S = 5.0
# In these standard deviations. With hundreds of rates checked twice a second, a limit of three
# would be crossed every few minutes.
_SIGMA = 4.0


@dataclass(frozen=True)
class Trigger:
    """The reason for a solve: its kind, as in table solves, and a description of the event."""

    kind: str  # start, period, guardrails, policy, placement or load
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(frozen=True)
class Basis:
    """The inputs of the last solve."""

    demand: Rates
    placement: Mapping[str, frozenset[str] | None]
    policy: str
    unknown: Unknown = NOTHING  # unknown demand is held: a change on its board does not count


def jumps(before: Rates, now: Rates, change: float) -> frozenset[tuple[str, str]]:
    """Returns the (cluster, class) pairs whose rate has jumped.

    The rate differs from before by more than `change`, relative to the larger one, and by more than
    noise explains.
    """
    return frozenset(
        key for key in before.keys() | now.keys() if _jumped(before.get(key, 0.0), now.get(key, 0.0), change)
    )


def _jumped(before: float, now: float, change: float) -> bool:
    larger, moved = max(before, now), abs(now - before)
    return moved > change * larger and moved > _SIGMA * math.sqrt(larger / BOARD_WINDOW_S)


def urgent(
    basis: Basis | None, pulse: Pulse, policy: str, guardrails_changed: bool, change: float
) -> Trigger | None:
    """Returns why to solve now. None: wait for the period. `change`: as in `jumps`."""
    if guardrails_changed:
        return Trigger("guardrails", "the file changed")
    if basis is None:
        return None
    if policy != basis.policy:
        return Trigger("policy", f"{policy!r} after {basis.policy!r}")
    for cluster in sorted(basis.placement.keys() | pulse.placement.keys()):
        before, now = basis.placement.get(cluster), pulse.placement.get(cluster)
        if before != now:
            return Trigger("placement", f"in {cluster}: {_placement(before, now)}")
    moved = [key for key in jumps(basis.demand, pulse.demand, change) if not of(basis.unknown, key)]
    if moved:
        cluster, class_id = key = min(moved)
        rps_before, rps = basis.demand.get(key, 0.0), pulse.demand.get(key, 0.0)
        more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        return Trigger("load", f"{class_id!r} in {cluster}: {rps_before:.0f} to {rps:.0f} req/s{more}")
    return None


def _placement(before: frozenset[str] | None, now: frozenset[str] | None) -> str:
    if now is None:
        return "no heartbeat any more"
    if before is None:
        return "heartbeat is back"
    gone, new = sorted(before - now), sorted(now - before)
    return ", ".join([*(f"{name} left" for name in gone), *(f"{name} came" for name in new)])
