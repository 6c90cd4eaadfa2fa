"""An application as Dealer sees it: components and the calls between them, without classes.

A component is a service at one depth of the call graph. The graph has no cycles, therefore, even
where services call each other back. The components of one service at two depths share its room.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.layout import Layout


@dataclass(frozen=True)
class Path:
    """A combination of clusters for one request. All numbers are per request."""

    flows: Floats  # [L, from, to] calls
    load: Floats  # [S, C] requests where calls are served, without the request that enters


@dataclass(frozen=True)
class Components:
    """The graph of components. N components, L links, S services, C clusters, E edges."""

    service: Ints  # [N] index of the service
    demand: Floats  # [N, C] entry rps
    link_source: Ints  # [L] index of the component; links in order of depth
    link_target: Ints  # [L]
    calls: Floats  # [L] calls per request of the source, mean over the current mix of classes
    usable: Bools  # [L, from, to] usable for any class
    closed: Bools  # [L, C] denials leave no class a destination
    link_of_edge: Ints  # [E]

    @classmethod
    def of(cls, layout: Layout, load: Floats) -> Self:
        """Builds the components. Calls are averaged over the mix of classes in `load` [K, C]."""
        depth = _depths(layout)
        keys = sorted({(int(d), int(s)) for d, s in zip(depth, layout.class_service, strict=True)})
        node = [keys.index((int(d), int(s))) for d, s in zip(depth, layout.class_service, strict=True)]
        pairs = [(node[a], node[b]) for a, b in zip(layout.edge_source, layout.edge_target, strict=True)]
        links = sorted(set(pairs))
        of_edge = np.array([links.index(pair) for pair in pairs], dtype=int)
        volume, made = np.zeros(len(keys)), np.zeros(len(links))
        np.add.at(volume, node, load.sum(axis=1) + 1e-9)
        # Calls that no cluster can serve are not made.
        ratio = layout.ratio * layout.usable.any(axis=(1, 2))
        np.add.at(made, of_edge, ratio * (load.sum(axis=1) + 1e-9)[layout.edge_source])
        source = np.array([a for a, _ in links], dtype=int)
        demand = np.zeros((len(keys), len(layout.clusters)))
        np.add.at(demand, node, layout.demand)
        usable = np.zeros((len(links), *layout.rtt.shape), dtype=bool)
        np.logical_or.at(usable, of_edge, layout.usable)
        closed = np.zeros(usable.shape[:2], dtype=bool)
        np.logical_or.at(closed, of_edge, layout.closed)
        return cls(
            service=np.array([s for _, s in keys], dtype=int),
            demand=demand,
            link_source=source,
            link_target=np.array([b for _, b in links], dtype=int),
            calls=made / volume[source],
            usable=usable,
            closed=closed & ~usable.any(axis=2),
            link_of_edge=of_edge,
        )

    def entries(self, i: int) -> list[int]:
        """Returns the components that requests enter in cluster `i`."""
        return np.flatnonzero(self.demand[:, i] > 0).tolist()

    def fastest(self, entry: int, i: int, delay: Floats, rtt: Floats, full: Bools) -> Path | None:
        """Returns the fastest combination for a request that enters component `entry` in cluster i.

        It has the least expected delay of those that call no place that is `full` [S, C]. None:
        there is none. Ties go to the caller's own cluster.
        """
        cost, choice = delay[self.service].copy(), np.zeros((len(self.calls), len(rtt)), dtype=int)
        near = ~np.eye(len(rtt), dtype=bool) * 1e-9
        for link in reversed(range(len(self.calls))):
            a, b = self.link_source[link], self.link_target[link]
            # Nobody waits for a link without calls, and no full place can block it.
            if self.calls[link] <= 0:
                continue
            open_ = self.usable[link] & ~full[self.service[b]][None, :]
            hop = np.where(open_, rtt + near + cost[b][None, :], np.inf)
            choice[link] = hop.argmin(axis=1)
            cost[a] = cost[a] + self.calls[link] * np.where(self.closed[link], 0.0, hop.min(axis=1))
        return self._trace(entry, i, choice, delay.shape) if np.isfinite(cost[entry, i]) else None

    def _trace(self, entry: int, i: int, choice: Ints, shape: tuple[int, ...]) -> Path:
        flows, at, load = np.zeros(self.usable.shape), np.zeros_like(self.demand), np.zeros(shape)
        at[entry, i] = 1.0
        for link in range(len(self.calls)):
            a, b = self.link_source[link], self.link_target[link]
            for j in np.flatnonzero((at[a] > 0) & ~self.closed[link]):
                calls, to = self.calls[link] * at[a, j], choice[link, j]
                flows[link, j, to] += calls
                at[b, to] += calls
                load[self.service[b], to] += calls
        return Path(flows, load)


def _depths(layout: Layout) -> Ints:
    """[K] calls on the longest way from an entry. The classes are ordered callers first."""
    depth = np.zeros(len(layout.classes), dtype=int)
    for k, edges in enumerate(layout.out_edges):
        for e in edges:
            target = layout.edge_target[e]
            depth[target] = max(depth[target], depth[k] + 1)
    return depth
