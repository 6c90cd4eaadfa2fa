"""How the load that prices attract responds to prices: the Hessian of the smooth dual.

A row's calls respond by the spread of what its destinations visit: the covariance of the visits
under the free shares, divided by tau. A request visits the station that serves it, and those that
its calls visit. Most edges lead to classes that call nobody. Their requests visit one station each,
so these edges are handled all at once, without a matrix of visits.

Shapes: K classes, E edges, C clusters, D stations of one application; I classes that call and are
called, since only their visits are needed further up.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.solvers.levels import Level, run


@dataclass(frozen=True)
class Calls:
    """What the calls of an application are at some prices."""

    shares: Floats  # [E, C, C] split of all calls of a row
    free: Floats  # [E, C, C] split of the calls that floors leave free
    free_rps: Floats  # [E, C] calls of each row that can respond
    serving: Floats  # [K, C] normalised load of one request where it is served


@dataclass(frozen=True)
class Bundle:
    """Edges [n], sorted by source, whose callees call and load the same stations [m]."""

    edges: slice | Ints  # [n]
    target: Ints  # [n] index below I
    ratio: Floats  # [n, 1, 1]
    first: Ints  # where the edges of each caller begin
    inner: Bools  # which of the callers are called
    callers: Ints  # these callers' indices below I
    stations: slice | Ints  # [m] indices below D, as a slice where they are consecutive
    block: tuple[slice | Ints, ...]  # the same for the rows and columns of a [D, D] matrix

    def add(self, to: Floats, visits: Floats, calls: Calls) -> None:
        """Adds covariances `to` a matrix [D, D], and the callers' visits to `visits` [I, C, D]."""
        seen = visits[:, :, self.stations][self.target]
        if len(self.callers):
            made = self.ratio * np.matmul(calls.shares[self.edges], seen)
            # A view if `stations` is a slice. Otherwise it is a copy, which is written back.
            above = visits[:, :, self.stations]
            above[self.callers] += np.add.reduceat(made, self.first, axis=0)[self.inner]
            visits[:, :, self.stations] = above
        rps, free = calls.free_rps[self.edges], calls.free[self.edges]
        arriving = np.matmul(rps[:, None, :], free)[:, 0, :]
        outer = (np.sqrt(arriving)[:, :, None] * seen).reshape(-1, seen.shape[2])
        inner = (np.sqrt(rps)[:, :, None] * np.matmul(free, seen)).reshape(-1, seen.shape[2])
        to[self.block] += outer.T @ outer - inner.T @ inner


@dataclass(frozen=True)
class Leaves:
    """Edges to classes that call nobody: [s, n] edges to s services, sorted by caller.

    Entries of arrays are selected by their index in the flat array.
    """

    edges: slice | Ints  # [s * n]
    target: Ints  # [s * n] class
    ratio: Floats  # [s * n, 1, 1]
    callers: Ints | None  # where the edges of each caller to each service begin; None: one each
    visits: Ints  # entries of visits [I, C, D] that those edges set
    visiting: slice | Ints  # and of their sums [caller and service, C, C]
    blocks: Ints  # entries of a matrix [D, D] to which those edges add
    covariances: slice | Ints  # and of their sums [s, C, C]
    services: int

    def add(self, to: Floats, visits: Floats, calls: Calls) -> None:
        """Adds covariances `to` a matrix [D, D], and sets the callers' `visits` [I, C, D]."""
        serving, clusters = calls.serving[self.target], calls.serving.shape[1]
        if len(self.visits):
            made = calls.shares[self.edges] * (self.ratio * serving[:, None, :])
            sums = made if self.callers is None else np.add.reduceat(made, self.callers, axis=0)
            visits.reshape(-1)[self.visits] = sums.reshape(-1)[self.visiting]
        rps, free = calls.free_rps[self.edges], calls.free[self.edges]
        arriving = np.matmul(rps[:, None, :], free)[:, 0, :] * serving**2
        inner = (free * np.sqrt(rps)[:, :, None] * serving[:, None, :]).reshape(self.services, -1, clusters)
        sums = -np.matmul(inner.transpose(0, 2, 1), inner)
        np.einsum("sii->si", sums)[:] += arriving.reshape(self.services, -1, clusters).sum(axis=1)
        to.reshape(-1)[self.blocks] += sums.reshape(-1)[self.covariances]


@dataclass(frozen=True)
class Response:
    """The edges of an application in the order in which visits go up."""

    stations: int
    inner: Ints  # [I] class
    own: tuple[Ints, Ints, Ints]  # index below I, cluster and station where each is served itself
    leaves: tuple[Leaves, ...]
    bundles: tuple[Bundle, ...]  # callees before their callers

    @classmethod
    def of(cls, station: Ints, class_service: Ints, up: tuple[Level, ...]) -> Self:
        """Groups the edges of `up`. `station` [S, C] has the numbers of the stations, or -1."""
        calling, called = (
            np.unique(np.concatenate([getattr(level, end) for level in up])) if up else np.zeros(0, int)
            for end in ("source", "target")
        )
        inner = np.intersect1d(calling, called)
        row = np.full(len(class_service), -1)
        row[inner] = np.arange(len(inner))
        served = station[class_service[inner]]
        i, c = np.nonzero(served >= 0)
        count = int(station.max(initial=-1)) + 1
        leaves = _leaves(station, class_service, up[0], row) if up else ()
        return cls(count, inner, (i, c, served[i, c]), leaves, _bundles(station, class_service, up, row))

    def matrix(self, calls: Calls) -> Floats:
        """Returns the covariances [D, D], in normalised rps. Divided by tau, they are responses."""
        clusters, (i, c, d) = calls.serving.shape[1], self.own
        visits = np.zeros((len(self.inner), clusters, self.stations))
        matrix = np.zeros((self.stations, self.stations))
        for leaves in self.leaves:
            leaves.add(matrix, visits, calls)
        visits[i, c, d] += calls.serving[self.inner[i], c]
        for bundle in self.bundles:
            bundle.add(matrix, visits, calls)
        return matrix


def _leaves(station: Ints, class_service: Ints, level: Level, row: Ints) -> tuple[Leaves, ...]:
    """Groups edges of the lowest level that lead to stations, by how many lead to each service."""
    service = class_service[level.target]
    edges = np.bincount(service, minlength=len(station)) * (station >= 0).any(axis=1)
    return tuple(
        _group(station, class_service, level, row, np.flatnonzero(edges[service] == count))
        for count in np.unique(edges[edges > 0])
    )


def _group(station: Ints, class_service: Ints, level: Level, row: Ints, at: Ints) -> Leaves:
    """Returns some edges of a level as one group. Their services have equally many of them."""
    at = at[np.lexsort((level.source[at], class_service[level.target[at]]))]
    service, source = class_service[level.target[at]], level.source[at]
    services, count, clusters = np.unique(service), int(station.max()) + 1, np.arange(station.shape[1])
    new = np.any(np.diff([service, source], axis=1, prepend=-1) != 0, axis=0)
    # For each caller and service: the caller's row in visits, and the stations.
    rows, to = row[source[new]][:, None, None], station[service[new]][:, None, :]
    visits = (rows * len(clusters) + clusters[:, None]) * count + to
    visited = np.broadcast_to((rows >= 0) & (to >= 0), visits.shape)
    own = station[services]
    blocks = own[:, :, None] * count + own[:, None, :]
    priced = (own[:, :, None] >= 0) & (own[:, None, :] >= 0)
    return Leaves(
        run(np.r_[level.edges][at]),
        level.target[at],
        level.ratio[at][:, :, None],
        None if new.all() else np.flatnonzero(new),
        visits[visited],
        run(np.flatnonzero(visited)),
        blocks[priced],
        run(np.flatnonzero(priced)),
        len(services),
    )


def _bundles(station: Ints, class_service: Ints, up: tuple[Level, ...], row: Ints) -> tuple[Bundle, ...]:
    """Groups the edges above the lowest level into bundles, callees before their callers."""
    below = [frozenset([s]) for s in class_service.tolist()]
    found = []
    for height, level in enumerate(up):
        groups: dict[frozenset[int], list[int]] = {}
        sources, targets = level.source.tolist(), level.target.tolist()
        for at in np.argsort(level.source, kind="stable").tolist():
            loaded_by_callee = below[targets[at]]
            groups.setdefault(loaded_by_callee, []).append(at)
            below[sources[at]] |= loaded_by_callee
        for services, members in groups.items() if height else ():
            loaded = np.sort(station[sorted(services)], axis=None)
            loaded = loaded[loaded >= 0]
            if len(loaded):
                callers, first = np.unique(level.source[members], return_index=True)
                found.append(
                    Bundle(
                        run(np.r_[level.edges][members]),
                        row[level.target[members]],
                        level.ratio[members][:, :, None],
                        first,
                        row[callers] >= 0,
                        row[callers][row[callers] >= 0],
                        *_block(loaded),
                    )
                )
    return tuple(found)


def _block(indices: Ints) -> tuple[slice | Ints, tuple[slice | Ints, ...]]:
    """Returns the indices, and the block of a matrix that they select."""
    chosen = run(indices)
    return chosen, (chosen, chosen) if isinstance(chosen, slice) else np.ix_(chosen, chosen)
