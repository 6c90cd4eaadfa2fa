"""A mesh of two clusters, for tests of limits on destinations."""

import itertools
from dataclasses import replace

from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem


def two_clusters(constraints: Constraints, west: float = 310.0) -> Problem:
    """Two classes of `db` are called by `web` in `west`, which has little room for them."""
    kinds = ("x", "y")
    services = ("web", "db")
    return Problem(
        clusters=("west", "east"),
        classes={f"{s} GET /{k}": s for s in services for k in kinds},
        edges=tuple(Edge(f"web GET /{k}", f"db GET /{k}", 1.0, 1e3, 1e4) for k in kinds),
        demand_rps={("west", f"web GET /{k}"): west for k in kinds},
        curves={f"{s} GET /{k}": Curve(5.0 if s == "db" else 0.1, 5.0) for s in services for k in kinds},
        capacity_rps={(s, c): 5000.0 if s == "web" else 1000.0 for s in services for c in ("west", "east")},
        placement=frozenset(itertools.product(services, ("west", "east"))),
        rtt_ms={("west", "east"): 30.0, ("east", "west"): 30.0},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        constraints=constraints,
    )


def renamed(problem: Problem, prefix: str) -> Problem:
    """Returns the problem with the prefix before the names of its services."""

    def name(text: str) -> str:
        return f"{prefix}-{text}"

    return replace(
        problem,
        classes={name(k): name(s) for k, s in problem.classes.items()},
        edges=tuple(replace(e, source=name(e.source), target=name(e.target)) for e in problem.edges),
        demand_rps={(c, name(k)): rps for (c, k), rps in problem.demand_rps.items()},
        curves={name(k): curve for k, curve in problem.curves.items()},
        capacity_rps={(name(s), c): rps for (s, c), rps in problem.capacity_rps.items()},
        placement=frozenset((name(s), c) for s, c in problem.placement),
        failure_ms={(name(k), c): ms for (k, c), ms in problem.failure_ms.items()},
    )
