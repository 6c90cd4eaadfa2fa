"""`dealer`: splits requests over combinations of clusters, as Dealer does.

Source: Hajjat et al., "Dealer: application-aware request splitting for interactive cloud
applications", CoNEXT 2012, as SLATE section 2 and table 1 characterise it.

Taken from there: The application is a graph of components, and a combination gives every component
a cluster. The entry point of each cluster knows the expected delay of every combination, computing
and network together, from observation. It fills the fastest combination up to the static thresholds
of its components, then the next one, until all its requests are assigned. Clusters do not
coordinate. Each counts only its own requests against a threshold, and notices the others by their
effect on delays. Splits follow observations gradually.

Not taken: estimating thresholds online, probing, per-request assignment. SLATE's table 1 says that
Dealer is not multi-hop, while its section 2 has it compare end-to-end paths. This module follows
section 2.

Dealer sees no egress and no traffic classes: there is one delay per component and one split per
pair of components. Of the side constraints it keeps denials, pins and draining (where calls may go
at all) and ignores all others.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.components import Components
from spillway_optimizer.policies.hops import thresholds
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.arrays import Bools, Floats, Index
from spillway_optimizer.problem.objective import evaluate_shares, propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


@dataclass
class Dealer:
    """Its state is the splits of the last call.

    A new instance starts local and runs `periods` at once, as if it had watched this problem for
    that long. After that, every call is one period.
    """

    step: float = 0.2  # part of the way to the new splits that one period goes
    periods: int = 40

    def __post_init__(self) -> None:
        self._key: tuple[tuple[str | Index, ...], ...] = ()
        self._shares: Floats | None = None

    def route(self, problem: Problem) -> Solution:
        """Moves the splits by one period, or by `periods` if the call graph is new."""
        layout = problem.layout
        key = (layout.clusters, layout.classes, tuple(layout.edge_source), tuple(layout.edge_target))
        shares, periods = nearest_shares(problem), self.periods
        if self._shares is not None and key == self._key:
            shares, periods = _still_usable(self._shares, layout.usable, shares), 1
        for period in range(periods):
            # Later steps shrink. Otherwise equally fast ways would swap for ever while the problem
            # stays the same.
            step = self.step / (1 + max(0.0, period - self.periods / 2) * self.step)
            shares = shares + step * (target(problem, shares) - shares)
        self._key, self._shares = key, shares
        return from_shares(problem, shares)


def target(problem: Problem, shares: Floats) -> Floats:
    """[E, from, to] splits that Dealer would choose from what it observes under `shares`."""
    layout = problem.layout
    observed = evaluate_shares(problem, shares)
    _, load = propagate(layout, shares)
    parts = Components.of(layout, load)
    delay = _delays(problem, observed.load, observed.latency_ms)
    limits = np.array([thresholds(problem, s) for s in range(len(layout.services))])
    flows = np.zeros((len(parts.link_source), len(layout.clusters), len(layout.clusters)))
    for i in range(len(layout.clusters)):
        room = limits.copy()
        for n in parts.entries(i):
            _fill(parts, layout.rtt, delay, room, n, i, flows)
    return _split(problem, parts, flows, shares)


def _delays(problem: Problem, load: Floats, latency: Floats) -> Floats:
    """[S, C] mean delay of a service's requests, whatever their class, in ms.

    Classes are weighted by load, and equally where a station is idle.
    """
    layout, size = problem.layout, problem.layout.capacity.shape
    total, count = np.zeros(size), np.zeros(size)
    weights = load + 1e-9
    np.add.at(total, layout.class_service, weights * latency)
    np.add.at(count, layout.class_service, weights)
    return total / count


def _fill(
    parts: Components,
    rtt: Floats,
    delay: Floats,
    room: Floats,
    entry: int,
    i: int,
    flows: Floats,
) -> None:
    """Assigns the requests that enter component `entry` in cluster `i`.

    Takes from `room` [S, C] and adds to `flows` [L, from, to], both in rps.
    """
    rest = float(parts.demand[entry, i])
    while rest > 1e-9:
        full = room <= 1e-9
        path = parts.fastest(entry, i, delay, rtt, full)
        amount = rest
        if path is None:
            # Everything reachable is full. The remaining requests go the fastest way of all.
            path = parts.fastest(entry, i, delay, rtt, np.zeros_like(full))
            if path is None:
                return
        else:
            load = path.load[path.load > 0]
            amount = min(rest, float((room[path.load > 0] / load).min(initial=np.inf)))
        room -= amount * path.load
        flows += amount * path.flows
        rest -= amount


def _split(problem: Problem, parts: Components, flows: Floats, shares: Floats) -> Floats:
    """Gives every edge the split of its pair of components.

    A row without requests keeps its shares.
    """
    layout, split = problem.layout, shares.copy()
    for e, link in enumerate(parts.link_of_edge):
        rows = np.where(layout.usable[e], flows[link], 0.0)
        total = rows.sum(axis=1)
        for i in np.flatnonzero(total > 1e-12):
            split[e, i] = rows[i] / total[i]
    return split


def _still_usable(shares: Floats, usable: Bools, otherwise: Floats) -> Floats:
    """Keeps the shares of usable destinations. A row without any gets those of `otherwise`."""
    kept = np.where(usable, shares, 0.0)
    total = kept.sum(axis=2, keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), otherwise)
