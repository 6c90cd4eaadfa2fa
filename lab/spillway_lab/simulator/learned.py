"""What is known of the queues as a round goes on: the oracle's tables, renewed. Pure."""

from collections.abc import Mapping

import numpy as np

from spillway_lab.simulator import known_model
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.known_model import Tables
from spillway_lab.simulator.observed import Period
from spillway_lab.simulator.world import World

_LEAST_MISSED = 0.01  # a cache that always hits would make a service that needs no time


class Learned:
    """Follows the world and what its caches have shown. If frozen, it stays as it began.

    It begins with empty caches.
    """

    def __init__(self, world: World, frozen: bool = False) -> None:
        self._world, self._frozen = world, frozen
        self._misses = Misses(world.indices)
        self._tables = known_model.tables(world)

    def after(self, seen: Period, changed: bool) -> Tables:
        """Returns the tables after a period. `changed`: an event has happened in it."""
        self._misses.add(seen)
        if not self._frozen and (changed or self._misses.shares):
            self._tables = known_model.tables(self._world, self._misses.shares)
        return self._tables


class Misses:
    """The share of each class's requests that its caches did not have, over all clusters so far."""

    def __init__(self, indices: Indices) -> None:
        endpoints = [endpoint for _, endpoint in indices.endpoints()]
        self._cached = {k: name for k, name in enumerate(indices.classes) if endpoints[k].cache}
        self._served, self._hits = (np.zeros(len(indices.classes)) for _ in range(2))

    def add(self, seen: Period) -> None:
        self._served += seen.served.sum(axis=1)
        self._hits += seen.hits.sum(axis=1)

    @property
    def shares(self) -> Mapping[str, float]:
        """By class, of those that have a cache and were served."""
        return {
            name: max(1.0 - float(self._hits[k] / self._served[k]), _LEAST_MISSED)
            for k, name in self._cached.items()
            if self._served[k]
        }
