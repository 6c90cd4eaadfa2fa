"""Finds the global optimum of a tiny problem on a grid of all splits.

Finer grids around the best splits follow. No step is shared with the solvers: all points of a grid
are priced at once, from the layout's arrays. A row of calls with one destination, or with none that
is free, has no choice. Every other row adds one coordinate per free destination but the last, which
gets the rest.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.objective import queue_factor, queue_slope
from spillway_optimizer.problem.penalties import BUDGET_FACTOR, CEILING_MS, budget_ms
from spillway_optimizer.problem.problem import Problem

MOST_CHOICES = 3
# Steps per coordinate of the first grid, by the number of coordinates. Powers of two: all later
# grids then contain the ends of every range exactly.
_STEPS = {1: 1024, 2: 64, 3: 16}
_BASINS = 4  # cells of the first grid that are refined
_BEST = 500  # points of the first grid among which they are looked for
_REACH = 2  # steps to either side of the best point in each later grid
_FINEST = 2.0**-26
_ROUNDS = 60  # of finer grids, at most
_LEAST_GAIN = 1e-9  # relative


@dataclass(frozen=True)
class Choices:
    """The splits of a problem's calls, as points of a cube."""

    problem: Problem

    @property
    def _layout(self) -> Layout:
        return self.problem.layout

    @cached_property
    def rows(self) -> list[tuple[int, int, list[int]]]:
        """Edge, source cluster and free destinations of each row that has calls and a choice."""
        layout = self._layout
        busy, rows = layout.demand > 0, []
        for k, edges in enumerate(layout.out_edges):
            for e in edges:
                for i in np.flatnonzero(busy[k] & (layout.ratio[e] > 0)):
                    free = np.flatnonzero(layout.free[e, i]).tolist()
                    rest = 1.0 - layout.floor[e, i].sum()
                    if len(free) > 1 and rest > 1e-9:
                        rows.append((e, int(i), free))
                    busy[layout.edge_target[e]] |= layout.usable[e, i]
        return rows

    @property
    def count(self) -> int:
        """The number of coordinates."""
        return sum(len(free) - 1 for _, _, free in self.rows)

    def shares(self, points: Floats) -> Floats:
        """Returns the shares [E, from, to, N] at points [coordinates, N]."""
        layout, at = self._layout, 0
        rest = np.maximum(1.0 - layout.floor.sum(axis=2), 0.0)
        shares = np.repeat(layout.floor[..., None], points.shape[1], axis=3)
        for e, i in zip(*np.nonzero(layout.usable.any(axis=2)), strict=True):
            free = np.flatnonzero(layout.free[e, i])
            if len(free):  # the loop below overwrites this for rows that have a choice
                shares[e, i, free[-1]] += rest[e, i]
            else:  # the floors decide all, but for rounding
                shares[e, i] /= shares[e, i].sum(axis=0)
        for e, i, free in self.rows:
            given = points[at : at + len(free) - 1]
            parts = np.vstack([given, 1.0 - given.sum(axis=0)])
            shares[e, i, free] = layout.floor[e, i, free][:, None] + rest[e, i] * parts
            at += len(free) - 1
        return shares

    def cost(self, points: Floats) -> Floats:
        """Returns the cost [N] at points [coordinates, N], with the penalties for exceeded limits.

        Unit: ms of waiting per second. inf where shares would be negative.
        """
        layout = self._layout
        load, network, egress = self._sent(points)
        cost = network + egress + np.einsum("k,kc,kcn->n", layout.value, layout.failure, load)
        ceiling, most = self.problem.constraints.utilisation_ceiling, budget_ms(self.problem)
        for s, c in np.ndindex(*layout.capacity.shape):
            classes = np.flatnonzero(layout.class_service == s)
            room, there = layout.capacity[s, c], load[classes, c]
            u = layout.weight[classes] @ there / room
            worth = (layout.wait * layout.value)[classes]
            cost += (worth * layout.a[classes]) @ there * self._factor(u, layout.seen[s, c])
            cost += (worth * layout.b[classes]) @ there
            if ceiling is not None:
                cost += 0.5 * CEILING_MS * room * np.maximum(u - ceiling, 0.0) ** 2
        if most is not None:
            cost += BUDGET_FACTOR * np.maximum(egress - most, 0.0)
        return np.where(self._inside(points), cost, np.inf)

    def _factor(self, u: Floats, seen: float) -> Floats:
        """Returns the queueing factor [N] at utilisation u [N].

        What it has above its tangent at `seen` counts again, times the caution.
        """
        if not np.isfinite(seen):
            return queue_factor(u)
        tangent = queue_factor(seen) + queue_slope(seen) * (u - seen)
        beyond = np.where(u > seen, queue_factor(u) - tangent, 0.0)
        return queue_factor(u) + self.problem.extrapolation_caution * beyond

    def at_budget(self, points: Floats) -> list[Floats]:
        """Returns points at which egress is the budget, in arrays like `points` [coordinates, ...].

        Each array has the points moved along one coordinate. Egress is affine in that. Without a
        budget, there is no array.
        """
        most = budget_ms(self.problem)
        if most is None:
            return []
        flat = points.reshape(len(points), -1)
        paid, moved = self._sent(flat)[2], []
        for axis in np.eye(len(points))[:, :, None]:
            slope = self._sent(flat + axis)[2] - paid
            met = flat + axis * (most - paid) / np.where(slope == 0, np.inf, slope)
            moved.append(met.reshape(points.shape))
        return moved

    def _sent(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns loads [K, C, N] in rps, and network time and egress [N] in ms per second."""
        layout, shares, count = self._layout, self.shares(points), points.shape[1]
        load = np.repeat(layout.demand[..., None], count, axis=2)
        network, egress = np.zeros(count), np.zeros(count)
        for k, edges in enumerate(layout.out_edges):
            for e in edges:
                for i, j in zip(*np.nonzero(layout.usable[e]), strict=True):
                    flow = layout.ratio[e] * load[k, i] * shares[e, i, j]
                    load[layout.edge_target[e], j] += flow
                    network += layout.hop_wait[e] * layout.value[k] * layout.rtt[i, j] * flow
                    egress += layout.egress[e, i, j] * flow / self.problem.usd_per_ms
        return load, network, egress

    def _inside(self, points: Floats) -> np.ndarray:
        inside, at = (points >= 0).all(axis=0) & (points <= 1).all(axis=0), 0
        for _, _, free in self.rows:
            inside &= points[at : at + len(free) - 1].sum(axis=0) <= 1
            at += len(free) - 1
        return inside


def best(choices: Choices) -> tuple[Floats, float]:
    """Returns the best point [coordinates] and its cost (ms of waiting per second).

    The best cells of the grid that are not neighbours are refined, so that the search does not end
    in the first basin.
    """
    count = choices.count
    assert 1 <= count <= MOST_CHOICES
    step = 1.0 / _STEPS[count]
    points = _lattice(np.arange(_STEPS[count] + 1) * step, count)
    cost = choices.cost(points)
    basins: list[Floats] = []
    for n in np.argsort(cost)[:_BEST]:
        if np.isfinite(cost[n]) and all(np.abs(points[:, n] - x).max(initial=0) > 2 * step for x in basins):
            basins.append(points[:, n])
        if len(basins) == _BASINS:
            break
    at, cost = _refined(choices, np.array(basins).T, step / 2)
    least = int(np.argmin(cost))
    return at[:, least], float(cost[least])


def _refined(choices: Choices, at: Floats, step: float) -> tuple[Floats, Floats]:
    """Moves each of the points [coordinates, N] to the best one on ever finer grids around it.

    A grid becomes finer when its best point is not at its edge, or hardly better. The budget is a
    wall that a grid meets only by chance, so the points where its lines meet the wall count too.
    Returns the points and their cost [N].
    """
    near = _lattice(np.arange(-_REACH, _REACH + 1.0), len(at))
    steps, cost, each = np.full(at.shape[1], step), choices.cost(at), np.arange(at.shape[1])
    for _ in range(_ROUNDS):
        around = at[:, :, None] + steps[:, None] * near[:, None, :]
        around = np.concatenate([around, *choices.at_budget(around)], axis=2)
        costs = choices.cost(around.reshape(len(at), -1)).reshape(around.shape[1:])
        least = costs.argmin(axis=1)
        better = costs[each, least] < cost
        moved = np.where(better, np.abs(around[:, each, least] - at).max(axis=0), 0.0)
        at, cost_before = np.where(better, around[:, each, least], at), cost
        cost = np.where(better, costs[each, least], cost)
        gained = cost_before - cost > _LEAST_GAIN * cost
        if not gained.any() and (steps < _FINEST).all():
            break
        steps = np.where(gained & (moved >= _REACH * steps), steps, steps / 2)
    return at, cost


def _lattice(values: Floats, count: int) -> Floats:
    """Returns all points [count, N] whose coordinates are among the values."""
    return np.stack(np.meshgrid(*[values] * count, indexing="ij")).reshape(count, -1)
