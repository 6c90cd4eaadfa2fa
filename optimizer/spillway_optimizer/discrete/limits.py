"""The routes that break a limit on destinations, and the simplest way to keep it. Pure.

Floors, pins and held shares come first: what they keep does not break a limit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Index
from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, imposed, routes

# Least shares are chosen this much higher, so that rounded weights keep them.
_PART = 1.0 / TOTAL


@dataclass(frozen=True)
class Row:
    """A route from one cluster, and what limits its destinations. C clusters."""

    key: RuleKey
    edges: tuple[int, ...]  # edges of the layout that share the route
    cluster: Index  # of the caller
    share: Floats  # [C] as it is; sums to 1
    least: Floats  # [C] least share of a destination that is used
    kept: Bools  # [C] destinations that floors keep
    held: Bools  # [C] destinations whose share is their floor
    leaving: Bools  # [C] those of them that calls leave by the maximum shift
    usable: Bools  # [C] destinations that are possible
    limit: int  # destinations that the guardrails allow
    most: int  # destinations that floors and steps leave possible, at least `limit`

    @property
    def used(self) -> Bools:
        """[C] the destinations that have a share."""
        return self.share > 0

    @property
    def crowded(self) -> bool:
        """Whether there are more destinations than allowed."""
        return int(self.used.sum()) > self.most

    @property
    def waits(self) -> bool:
        """Whether floors keep more destinations than allowed, and calls do not leave them."""
        return self.limit < self.most and int(self.used.sum()) > self.limit and not self.leaving.any()

    @property
    def breaks(self) -> bool:
        """Whether the shares break a limit."""
        small = self.used & ~self.held & (self.share < self.least - 1.5 * _PART)
        return bool(small.any()) or self.crowded

    def largest(self) -> Bools:
        """Returns which destinations [C] are used if the largest shares stay.

        Always possible, because floors alone are within the limits.
        """
        used = self.kept.copy()
        by_share = np.lexsort((self.share, self.kept))[::-1]
        for j in by_share[self.usable[by_share]]:
            needed = not (used & ~self.held).any()
            enough = needed or self.share[j] >= self.least[j]
            if used.sum() < self.most and self.least[used].sum() + self.least[j] <= 1.0 and enough:
                used[j] = True
        return used

    def over(self, used: Bools) -> Floats:
        """Returns shares [C] over the destinations `used`: at least the least ones, and sum 1.

        Above these, they are in proportion to the shares as they are.
        """
        least = np.where(used, self.least, 0.0)
        free = used & ~self.held
        above = np.where(free, np.maximum(self.share - least, 0.0), 0.0)
        if above.sum() <= _PART:
            above = free.astype(float)
        found: Floats = least + above * (max(1.0 - float(least.sum()), 0.0) / float(above.sum()))
        return found


def rows(problem: Problem, merged: Floats) -> Iterator[Row]:
    """Yields every route that a policy may split, by cluster.

    `merged` [E, C, C] has one split per route (see rules.merge).
    """
    layout, c = problem.layout, problem.constraints
    for (s, k), edges in routes(problem).items():
        e, class_id = edges[0], layout.classes[k]
        limit = 1 if class_id in c.whole else (c.max_destinations or len(layout.clusters))
        for i in np.flatnonzero(layout.free[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], class_id)
            if layout.floor[e, i].sum() > 1 - _PART or key in c.pinned:
                continue  # the floors decide everything
            if imposed(problem, key, e, int(i)) is None:
                yield _row(problem, key, tuple(edges), int(i), merged[e, i], limit)


def _row(problem: Problem, key: RuleKey, edges: tuple[int, ...], i: int, share: Floats, limit: int) -> Row:
    layout = problem.layout
    floor, free, usable = layout.floor[edges[0], i], layout.free[edges[0], i], layout.usable[edges[0], i]
    held, kept = usable & ~free, floor > 0
    smallest = problem.constraints.min_share
    least = np.where(free, np.maximum(floor, smallest + _PART if smallest > 0 else 0.0), floor)
    if least[kept].sum() > 1:  # too many floors to raise them all
        least = np.where(kept, floor, least)
    only_held = not (kept & free).any()
    if only_held:  # what they leave must go somewhere, however little it is
        least = np.where(free, np.minimum(least, 1.0 - floor.sum()), least)
    leaving = held & kept & ~_listed(problem, key)
    most = max(limit + int(leaving.sum()), int(kept.sum()) + only_held)
    return Row(key, edges, i, share, least, kept, held, leaving, usable & ~(held & ~kept), limit, most)


def _listed(problem: Problem, key: RuleKey) -> Bools:
    """Returns which destinations [C] a route may have in the end: the chosen and the held ones."""
    c, clusters = problem.constraints, problem.layout.clusters
    if key not in c.destinations:
        return np.ones(len(clusters), dtype=bool)
    stays = {*c.destinations[key], *c.held.get(key, ())}
    return np.array([cluster in stays for cluster in clusters])


def destinations(problem: Problem, rows: Iterable[Row], used: Iterable[Bools]) -> Mapping[Route, Shares]:
    """Returns the destinations that each row uses and keeps, with their least shares."""
    clusters = problem.layout.clusters
    return {
        row.key: {clusters[j]: float(row.least[j]) for j in np.flatnonzero(chosen & ~row.leaving)}
        for row, chosen in zip(rows, used, strict=True)
    }
