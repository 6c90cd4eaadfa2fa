"""Problems of a stated size for benchmarks.

They are call trees over clusters that lie on a plane. A seed always gives the same problem.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from spillway_optimizer.problem.problem import Curve, Edge, Problem


@dataclass(frozen=True)
class Size:
    """The size of a problem.

    Each application is a tree of at most `services` services, with the stated depth (levels) and
    fan-out. Every class of an application calls its whole tree, and every service is in every
    cluster.
    """

    clusters: int
    classes: int
    depth: int
    services: int
    applications: int = 1
    fan_out: int = 3

    @property
    def endpoints(self) -> int:
        """Number of (cluster, service, class) triples, SLATE appendix E.1."""
        tree = len(_parents(self.depth, self.services, self.fan_out))
        return self.clusters * self.applications * tree * self.classes


def _parents(depth: int, services: int, fan_out: int) -> list[int]:
    """Returns the caller of each service, breadth first; -1: the entry."""
    parents, level, at = [-1], [0], 0
    while at < len(parents) and len(parents) < services:
        if level[at] < depth - 1:
            children = min(fan_out, services - len(parents))
            parents += [at] * children
            level += [level[at] + 1] * children
        at += 1
    return parents


def noisy(base: Problem, spread: float, seed: int = 0) -> Problem:
    """Returns the problem with each class's a_ms multiplied by log-normal noise.

    Curves that are fitted class by class are like this. `spread` is the standard deviation of the
    logarithm.
    """
    r = np.random.default_rng(seed)
    curves = {
        k: Curve(c.a_ms * float(np.exp(spread * r.normal())), c.b_ms, c.norm_weight)
        for k, c in base.curves.items()
    }
    return dataclasses.replace(base, curves=curves)


def by_application(base: Problem) -> dict[str, Problem]:
    """Splits a problem of this file into those of its applications, as the service builds them."""
    services: dict[str, set[str]] = {}
    for service in base.classes.values():
        services.setdefault(service.partition("s")[0], set()).add(service)
    return {name: _of_services(base, own) for name, own in services.items()}


def _of_services(base: Problem, own: set[str]) -> Problem:
    classes = {k: service for k, service in base.classes.items() if service in own}
    return dataclasses.replace(
        base,
        classes=classes,
        edges=tuple(edge for edge in base.edges if edge.source in classes),
        demand_rps={(c, k): rps for (c, k), rps in base.demand_rps.items() if k in classes},
        curves={k: curve for k, curve in base.curves.items() if k in classes},
        capacity_rps={(s, c): rps for (s, c), rps in base.capacity_rps.items() if s in own},
        placement=frozenset(pair for pair in base.placement if pair[0] in own),
    )


def problem(size: Size, seed: int = 0) -> Problem:
    """Builds a problem.

    Load is 80 % of all capacity. Clusters get 0.2 to 1.8 of their part of it, which is what there
    is to route. Entries have room for all that enters, so no overload is beyond the help of
    routing.
    """
    r = np.random.default_rng(seed)
    names = tuple(f"c{i}" for i in range(size.clusters))
    position = r.uniform(0, 60, (size.clusters, 2))
    distance = np.hypot(*(position[:, None] - position[None]).transpose(2, 0, 1))
    classes, edges, curves, demand, capacity = {}, [], {}, {}, {}
    for a in range(size.applications):
        parents = _parents(size.depth, size.services, size.fan_out)
        services = [f"a{a}s{s}" for s in range(len(parents))]
        load = np.zeros(len(services))
        enters = np.zeros(size.clusters)
        for k in range(size.classes):
            ids = [f"{service} GET /{k}" for service in services]
            ratio, weight = r.choice([0.5, 1.0, 2.0], len(parents)), float(r.uniform(0.5, 2.0))
            offered = 100.0 / size.classes * r.uniform(0.2, 1.8, size.clusters)
            demand |= {(c, ids[0]): float(rps) for c, rps in zip(names, offered, strict=True)}
            volume = np.zeros(len(parents))
            volume[0], enters = offered.sum(), enters + weight * offered
            for s, parent in enumerate(parents):
                classes[ids[s]] = services[s]
                curves[ids[s]] = Curve(2.0 * weight, 5.0, weight)
                if parent >= 0:
                    volume[s] = ratio[s] * volume[parent]
                    sent, received = float(r.uniform(200, 2e3)), float(r.uniform(1e3, 5e4))
                    edges.append(Edge(ids[parent], ids[s], float(ratio[s]), sent, received))
            load += weight * volume
        room = load[:, None] / size.clusters / 0.8 * r.uniform(0.6, 1.4, (len(services), size.clusters))
        room[0] = np.maximum(room[0], enters / 0.8)
        capacity |= {
            (services[s], c): float(room[s, i]) for s in range(len(services)) for i, c in enumerate(names)
        }
    pairs = [(i, j) for i in range(size.clusters) for j in range(size.clusters)]
    return Problem(
        clusters=names,
        classes=classes,
        edges=tuple(edges),
        demand_rps=demand,
        curves=curves,
        capacity_rps=capacity,
        placement=frozenset(capacity),
        rtt_ms={(names[i], names[j]): float(distance[i, j]) for i, j in pairs},
        egress_usd_per_gb={(names[i], names[j]): 0.02 for i, j in pairs if i != j},
        usd_per_ms=1e-7,
    )
