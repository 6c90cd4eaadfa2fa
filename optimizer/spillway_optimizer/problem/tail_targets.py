"""Which tail targets of a problem can be enforced. Pure."""

from dataclasses import dataclass

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.reach import Graph
from spillway_optimizer.problem.values import Values


@dataclass(frozen=True)
class Target:
    """A tail target that is enforced.

    `k`: index of its entry class. `price`: what a ms above `p99_ms` counts per request, in ms.
    """

    k: int
    p99_ms: float
    price: float


def enforced(problem: Values, graph: Graph, ratio: Floats) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """Returns the targets that can be enforced, and a note for each of the others.

    A target is enforced if the spread of each class in its call tree is known. An unknown spread is
    not taken as 0. `ratio` [E]: calls per request, 0 over edges that carry no calls.
    """
    targets, notes = [], []
    for class_id, target in sorted(problem.tail_targets.items()):
        k = graph.classes.index(class_id)
        unknown = _unknown(problem, graph, ratio, k)
        if unknown:
            notes.append(
                f"tail_targets: the p99 of {class_id!r} is not known, so its target is not enforced: "
                f"the spread of {', '.join(map(repr, unknown))} is unknown"
            )
        else:
            price = target.value * problem.latency_values.get(class_id, 1.0)
            targets.append(Target(k, target.p99_ms, price))
    return tuple(targets), tuple(notes)


def _unknown(problem: Values, graph: Graph, ratio: Floats, k: int) -> list[str]:
    """Returns the classes of unknown spread in the call tree of class `k`, sorted."""
    todo, seen = [k], {k}
    while todo:
        for e in graph.out_edges[todo.pop()]:
            to = int(graph.edge_target[e])
            if ratio[e] > 0 and to not in seen:
                seen.add(to)
                todo.append(to)
    return sorted(graph.classes[n] for n in seen if problem.curves[graph.classes[n]].sd_a_ms is None)
