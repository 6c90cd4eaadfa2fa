"""Random routing problems.

They are DAGs with shared callees, partial placement, asymmetric networks and side constraints.
"""

import numpy as np
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem


def random_problem(
    seed: int, constrained: bool = True, convex: bool = True, clusters: int | None = None
) -> Problem:
    """Returns a random problem.

    The demand ranges from a tenth of all capacity to more than all of it.
    """
    r = np.random.default_rng(seed)
    names = tuple(f"c{i}" for i in range(clusters or r.integers(2, 6)))
    services = [f"s{i}" for i in range(r.integers(2, 7))]
    classes: dict[str, str] = {}
    edges: list[Edge] = []
    entries: list[str] = []
    for k in range(r.integers(1, 4)):
        ids = [f"{s} GET /{k}" for s in services]
        classes |= dict(zip(ids, services, strict=True))
        entries.append(ids[0])
        for n in range(1, len(ids)):
            # One caller, and sometimes a second one, which makes the callee shared.
            for m in sorted({int(r.integers(0, n)), *([int(r.integers(0, n))] if r.random() < 0.3 else [])}):
                edges.append(
                    Edge(ids[m], ids[n], float(r.choice([0.3, 1.0, 1.0, 2.5])), float(r.uniform(100, 5e3)),
                         float(r.uniform(1e3, 1e5)), 1.0 if convex else float(r.choice([1.0, 1.0, 0.6])))
                )  # fmt: skip
    placement = [(s, c) for s in services for c in names if r.random() < 0.8]
    placement += [(services[0], c) for c in names] + [
        (s, names[int(r.integers(len(names)))]) for s in services
    ]
    placement = sorted(set(placement))
    a = {s: float(r.choice([0.0, 0.5, 2.0, 8.0])) for s in services}
    weight = {k: float(r.uniform(0.5, 3.0)) for k in classes}
    spread = {k: 1.0 if convex else float(r.uniform(0.3, 3.0)) for k in classes}
    curves = {
        k: Curve(a[s] * weight[k] * spread[k], float(r.uniform(0, 10)), weight[k]) for k, s in classes.items()
    }
    demand = {(c, k): float(r.uniform(0, 100)) for c in names for k in entries if r.random() < 0.8}
    demand = demand or {(names[0], entries[0]): 50.0}
    offered = _offered(classes, edges, demand, weight)
    busy = float(r.uniform(0.1, 1.3))
    capacity = {
        (s, c): max(offered.get(s, 1.0), 1.0)
        / busy
        / sum((s, x) in placement for x in names)
        * float(r.uniform(0.5, 1.5))
        for s, c in placement
    }
    rtt = {(x, y): float(r.uniform(1, 100)) for x in names for y in names if x != y}
    price = {pair: float(r.choice([0.0, 0.01, 0.02, 0.09])) for pair in rtt}
    return Problem(
        clusters=names, classes=classes, edges=tuple(edges), demand_rps=demand, curves=curves,
        capacity_rps=capacity, placement=frozenset(placement), rtt_ms=rtt, egress_usd_per_gb=price,
        usd_per_ms=float(10 ** r.uniform(-8, -5)),
        constraints=_constraints(r, names, services, classes, edges) if constrained else Constraints(),
        failure_ms={(k, c): float(r.choice([5.0, 60.0, 2000.0])) for k in classes for c in names if r.random() < 0.1},
    )  # fmt: skip


def _offered(classes, edges, demand, weight) -> dict[str, float]:
    volume = dict.fromkeys(classes, 0.0)
    for (_, k), rps in demand.items():
        volume[k] += rps
    for edge in sorted(edges, key=lambda e: int(e.source.split()[0][1:])):
        volume[edge.target] += edge.calls_per_request * volume[edge.source]
    offered: dict[str, float] = {}
    for k, s in classes.items():
        offered[s] = offered.get(s, 0.0) + weight[k] * volume[k]
    return offered


def _constraints(r, names, services, classes, edges) -> Constraints:
    limits = {}
    if r.random() < 0.3:
        limits["min_local_share"] = float(r.uniform(0, 0.6))
    if r.random() < 0.3:
        limits["utilisation_ceiling"] = float(r.uniform(0.4, 0.95))
    if r.random() < 0.2:
        limits["drained"] = frozenset({names[-1]})
    if r.random() < 0.3:
        limits["egress_usd_per_hour"] = float(10 ** r.uniform(-3, 1))
    if r.random() < 0.3:
        callees = sorted({e.target for e in edges})
        limits["denied"] = frozenset(
            (
                names[int(r.integers(len(names)))],
                callees[int(r.integers(len(callees)))],
                names[int(r.integers(len(names)))],
            )
            for _ in range(3)
        )
    if r.random() < 0.3:
        limits["max_shift"] = float(r.uniform(0.05, 0.9))
        limits["in_force"] = {
            (c, classes[e.source], e.target): dict(zip(names, r.dirichlet(np.ones(len(names))).tolist(), strict=True))
            for e in edges for c in names
        }  # fmt: skip
    if r.random() < 0.3:
        limits["held"] = {
            (c, classes[e.source], e.target): dict(
                zip(names[:-1], r.dirichlet(np.ones(len(names)))[:-1].tolist(), strict=True)
            )
            for e in edges for c in names if r.random() < 0.3
        }  # fmt: skip
    return Constraints(**limits)
