"""The estimated p99 of users' requests at one routing, by class and entry cluster. Pure."""

import math
from dataclasses import dataclass

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.objective import propagate, queue_factor, utilisation
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.tails import estimates


@dataclass(frozen=True)
class P99:
    """The p99 of the requests of an entry class that enter in one cluster.

    `p99_ms`: None if the spread of a class in its call tree is unknown. `target_ms`: None without a
    target that is enforced.
    """

    class_id: str
    cluster: str
    rps: float
    p99_ms: float | None
    target_ms: float | None


def p99s(problem: Problem, shares: Floats, class_id: str | None = None) -> tuple[P99, ...]:
    """Returns the p99s at shares [E, from, to] of all entry classes and clusters with requests.

    `class_id`: only those of entry classes whose requests cause calls of this class.
    """
    layout = problem.layout
    flows, load = propagate(layout, shares)
    entries = _reaching(layout, layout.classes.index(class_id)) if class_id is not None else None
    return tuple(
        P99(
            layout.classes[tail.k],
            layout.clusters[tail.c],
            tail.rps,
            None if math.isnan(tail.p99_ms) else tail.p99_ms,
            None if math.isinf(tail.target_ms) else tail.target_ms,
        )
        for tail in estimates(layout, flows, queue_factor(utilisation(layout, load)))
        if entries is None or tail.k in entries
    )


def _reaching(layout: Layout, k: int) -> set[int]:
    """Returns the classes whose requests lead to class `k`, itself included."""
    found = {k}
    for source in reversed(range(k)):  # classes come before the classes that they call
        if any(int(layout.edge_target[e]) in found for e in layout.out_edges[source]):
            found.add(source)
    return found
