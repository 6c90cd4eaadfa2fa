"""Decides whether to solve before the period ends. Pure.

A solve is based on demand, placement, guardrails and a policy. If one of them changes, waiting for
the end of the period would keep rules that are known to be wrong.
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from spillway_optimizer.inputs.smoothing import Rates
from spillway_optimizer.inputs.telemetry import Pulse
from spillway_optimizer.inputs.unknown import NOTHING, Unknown, of

# A board's rate is a count over this window. Requests arrive at random, so the standard deviation
# of the rate is sqrt(rate / window).
BOARD_WINDOW_S = 5.0
# In these standard deviations. With hundreds of rates checked twice a second, a limit of three
# would be crossed every few minutes.
_SIGMA = 4.0
# For a window after a jump, both limits are so much lower. The first answer rests on the few
# requests since the jump, and each further tenth of a second tells more.
_LATELY = 0.5
REGULAR = ("start", "period")  # kinds of triggers that are not urgent


@dataclass(frozen=True)
class Trigger:
    """The reason for a solve: its kind, as in table solves, and a description of the event."""

    kind: str  # start, period, guardrails, policy, placement or load
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(frozen=True)
class Basis:
    """The inputs of the last solve.

    `jumped`: how long before it rates had jumped, in seconds, of those that had in the last window.
    """

    demand: Rates
    placement: Mapping[str, frozenset[str] | None]
    policy: str
    unknown: Unknown = NOTHING  # unknown demand is held: a change on its board does not count
    jumped: Mapping[tuple[str, str], float] = field(default_factory=dict)


def jumps(
    before: Rates, now: Rates, change: float, lately: Container[tuple[str, str]] = ()
) -> frozenset[tuple[str, str]]:
    """Returns the (cluster, class) pairs whose rate has jumped.

    The rate differs from before by more than `change`, relative to the larger one, and by more than
    noise explains. Both limits are lower for rates that jumped `lately`.
    """
    return frozenset(
        key
        for key in before.keys() | now.keys()
        if _jumped(before.get(key, 0.0), now.get(key, 0.0), change, _LATELY if key in lately else 1.0)
    )


def _jumped(before: float, now: float, change: float, part: float) -> bool:
    larger, moved = max(before, now), abs(now - before)
    return moved > part * max(change * larger, _SIGMA * math.sqrt(larger / BOARD_WINDOW_S))


def urgent(
    basis: Basis | None,
    pulse: Pulse,
    policy: str,
    guardrails_changed: bool,
    change: float,
    since_s: float = math.inf,
) -> Trigger | None:
    """Returns why to solve now. None: wait for the period.

    `change`: as in `jumps`. `since_s`: seconds since the last solve.
    """
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
    lately = {key for key, before_s in basis.jumped.items() if before_s + since_s <= BOARD_WINDOW_S}
    found = jumps(basis.demand, pulse.demand, change, lately)
    moved = [key for key in found if not of(basis.unknown, key)]
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
