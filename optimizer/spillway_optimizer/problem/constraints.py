"""Side constraints of a routing, besides capacity and conservation.

They are the operator's guardrails as the solver sees them, and the bounds that these put on the
shares of one route. They apply in the publisher's order:

- A pin fixes its route, whatever the other constraints demand.
- Denials fail closed: calls without an allowed destination are refused.
- Held shares stay.
- The minimum local share applies, and what stays local for an autoscaler.
- The maximum shift applies.
- A share is 0 or at least the least one, and the number of destinations is limited.

The egress budget, the utilisation ceiling and draining are kept as far as possible.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats

Route = tuple[str, str, str]  # source cluster, source service, class that is called
Shares = Mapping[str, float]  # by destination cluster, summing to 1


@dataclass(frozen=True)
class Constraints:
    """Side constraints of a problem. By default nothing is constrained."""

    # Calls that must not be made: (source cluster, class, destination cluster).
    denied: frozenset[tuple[str, str, str]] = frozenset()
    pinned: Mapping[Route, Shares] = field(default_factory=dict)
    # Least share of calls that stay local, for every route that its own cluster can serve.
    min_local_share: float = 0.0
    # By (class, cluster): least share of the calls made there that stay there, for an autoscaler.
    kept_local: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # Share of a route's calls that may go elsewhere than `in_force` sends them; 1: all of them.
    max_shift: float = 1.0
    in_force: Mapping[Route, Shares] = field(default_factory=dict)
    # Destinations that keep exactly this share of a route's calls. The remaining calls go to the
    # other destinations. Shares that sum to 1 hold the whole route.
    held: Mapping[Route, Shares] = field(default_factory=dict)
    # Among the routes that are held whole, those that have no rule and get none.
    unruled: frozenset[Route] = frozenset()
    egress_usd_per_hour: float | None = None
    utilisation_ceiling: float | None = None
    # Clusters that get calls only where no other cluster can take them.
    drained: frozenset[str] = frozenset()
    # A share of a route is 0 or at least this. Larger floors and everything above come first.
    min_share: float = 0.0
    max_destinations: int | None = None  # of one route
    whole: frozenset[str] = frozenset()  # classes whose calls from a cluster share one destination
    # The only destinations that a route may use, each with its least share. Calls leave the others
    # as fast as `max_shift` allows.
    destinations: Mapping[Route, Shares] = field(default_factory=dict)

    @property
    def discrete(self) -> bool:
        """Whether destinations are limited in number or by a least share."""
        return self.min_share > 0 or self.max_destinations is not None or bool(self.whole)


def shift_floor(in_force: Floats, max_shift: float) -> Floats:
    """Returns the least share per destination [C] that limits a change to `max_shift` of the calls.

    Any routing above these shares moves at most `max_shift` of the calls. The moved part is half
    the L1 distance to `in_force`, which sums to 1.

    Destinations with very small shares get the floor 0 at once, so that a sequence of steps ends.
    The other destinations all keep the same part of their shares.
    """
    if max_shift >= 1.0:
        return np.zeros_like(in_force)
    order = np.argsort(in_force, kind="stable")
    running = np.cumsum(in_force[order])
    let_go = order[running <= max_shift / 2]
    floor = in_force.copy()
    floor[let_go] = 0.0
    gone = float(in_force[let_go].sum())
    kept = float(floor.sum())
    return floor * (1.0 - (max_shift - gone) / kept) if kept > 0 else floor


def step_floor(in_force: Floats, chosen: Bools, max_shift: float) -> Floats:
    """Returns the least share per destination [C] on the way to the `chosen` destinations.

    Calls leave the other destinations first. What is then left of `max_shift` is the freedom of the
    chosen ones. `in_force` sums to 1.
    """
    others = float(in_force[~chosen].sum())
    kept = 1.0 - others
    gone = min(max_shift, others)
    stays = 1.0 - (max_shift - gone) / kept if kept > 0 else 1.0
    left = 1.0 - gone / others if others > 0 else 1.0
    floor: Floats = in_force * np.where(chosen, stays, left)
    return floor


def with_local(floor: Floats, i: int, least: float) -> Floats:
    """Returns `floor` [C] with at least `least` for destination `i`.

    The floors of the other destinations shrink in proportion where there is no room for them.
    """
    if floor[i] >= least:
        return floor
    others = float(floor.sum() - floor[i])
    raised = floor * (min(1.0, (1.0 - least) / others) if others > 0 else 1.0)
    raised[i] = least
    return raised


def held_floor(shares: Floats, listed: Bools, usable: Bools, floor: Floats) -> tuple[Floats, Bools] | None:
    """Returns floor and free destinations, [C] each, of a row whose `listed` destinations are held.

    The listed destinations keep `shares`. `floor` is the floor of the other destinations. The share
    of a destination that is no longer usable goes to the free destinations. If there are none, it
    goes to the held destinations in proportion. Returns None when nothing is left to hold.
    """
    fixed, free = shares * (listed & usable), usable & ~listed
    total = float(fixed.sum())
    if shares.sum() > 1 - 1e-6 and total > 0 and not (listed & ~usable & (shares > 0)).any():
        return fixed / total, np.zeros_like(usable)
    if not free.any():
        return (fixed / total, np.zeros_like(usable)) if total > 0 else None
    others = np.where(free, floor, 0.0)
    least = float(others.sum())
    room = max(1.0 - total, 0.0)
    return fixed + others * (min(1.0, room / least) if least > 0 else 1.0), free


def problems(constraints: Constraints, clusters: tuple[str, ...]) -> list[str]:
    """Returns what is wrong with the values. Each entry names its key and what is allowed."""
    c, found = constraints, []
    for key in ("min_local_share", "max_shift", "min_share"):
        value = getattr(c, key)
        if not 0.0 <= value <= 1.0:
            found.append(f"constraints.{key}: {value} must be from 0 to 1")
    for (class_id, cluster), value in c.kept_local.items():
        if not 0.0 <= value <= 1.0:
            found.append(f"constraints.kept_local[{class_id}, {cluster}]: {value} must be from 0 to 1")
    if c.egress_usd_per_hour is not None and not 0.0 <= c.egress_usd_per_hour < math.inf:
        found.append(
            f"constraints.egress_usd_per_hour: {c.egress_usd_per_hour} must be a number of at least 0"
        )
    if c.utilisation_ceiling is not None and not 0.0 < c.utilisation_ceiling <= 1.0:
        found.append(
            f"constraints.utilisation_ceiling: {c.utilisation_ceiling} must be above 0 and at most 1"
        )
    if c.max_destinations is not None and c.max_destinations < 1:
        found.append(f"constraints.max_destinations: {c.max_destinations} must be at least 1")
    found += [
        f"constraints.drained: unknown {cluster!r}; known: {', '.join(clusters)}"
        for cluster in sorted(c.drained - set(clusters))
    ]
    for name in ("pinned", "in_force", "held", "destinations"):
        for route, shares in getattr(c, name).items():
            total = sum(shares.values())
            at_most = name in ("held", "destinations")
            wrong = total > 1.0 + 1e-3 if at_most else not abs(total - 1.0) <= 1e-3
            if not all(share >= 0 for share in shares.values()) or wrong:
                found.append(
                    f"constraints.{name}[{', '.join(route)}]: sums to {total}; must be shares of at least 0 that "
                    f"sum to {'at most ' if at_most else ''}1"
                )
    return found
