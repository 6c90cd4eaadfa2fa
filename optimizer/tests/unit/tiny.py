"""Random problems that are small enough for brute force, of every kind that the solver meets."""

import dataclasses
import itertools

import numpy as np
from brute_force import MOST_CHOICES, Choices
from spillway_optimizer import ProblemError
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.solvers.descent import relaxation

NOISES = (0.0, 0.05, 0.3, 0.8, 2.5)  # standard deviation of log(a_ms)

SLOW_MS = 1000.0


def tiny_problem(seed: int) -> Problem:
    """Returns a problem whose calls have one to MOST_CHOICES shares to choose.

    A seed always gives the same problem. Draws with more choices, or with none, are skipped, and so
    are those in which demand cannot be served.
    """
    r = np.random.default_rng(seed)
    while True:
        try:
            problem = _drawn(r)
            count = Choices(problem).count
        except ProblemError:
            continue
        if 1 <= count <= MOST_CHOICES:
            problem = _slowed(np.random.default_rng([seed, 1]), problem)
            return _with_budget(r, _weighed(np.random.default_rng([seed, 2]), problem))


def kinds(problem: Problem) -> set[str]:
    """Returns what is special about a problem, in words."""
    layout, c = problem.layout, problem.constraints
    even = relaxation(problem).envelope.even
    first = sum(layout.demand.sum(axis=1)[layout.edge_source] > 0)
    found = {
        f"{len(problem.clusters)} clusters": True,
        f"{len({problem.classes[e.target] for e in problem.edges})} routed services": True,
        f"{sum(k.startswith('in ') for k in problem.classes)} entry classes": True,
        "proportional": even,
        "not proportional": not even,
        "two hops": first < len(problem.edges),
        "shared callee": len({e.target for e in problem.edges}) < len(problem.edges),
        "partial placement": not layout.placed.all(),
        "missing link": not np.isfinite(layout.rtt).all(),
        "waits for a part": any(e.wait_share < 1 for e in problem.edges),
        "failures": bool(problem.failure_ms),
        "denied": bool(c.denied),
        "closed": bool(layout.closed.any()),
        "pinned": bool(c.pinned),
        "local share": c.min_local_share > 0,
        "max shift": c.max_shift < 1,
        "held": bool(c.held),
        "egress budget": c.egress_usd_per_hour is not None,
        "ceiling": c.utilisation_ceiling is not None,
        "drained": bool(c.drained),
        "values": bool((layout.value != 1).any()),
        "caution": problem.extrapolation_caution > 0 and bool(problem.seen_utilisation),
        "slow": max(curve.a_ms for curve in problem.curves.values()) > SLOW_MS,
    }
    return {kind for kind, there in found.items() if there}


def _drawn(r: np.random.Generator) -> Problem:
    names = ("c0", "c1", "c2")[: r.choice([2, 2, 3])]
    classes, edges = _calls(r)
    services = sorted(set(classes.values()))
    curves, weight = _curves(r, classes), {}
    weight = {k: curve.norm_weight for k, curve in curves.items()}
    scale = float(10 ** r.uniform(0, 3))
    demand = {
        (c, k): scale * float(r.uniform(0.05, 1))
        for c, k in itertools.product(names, classes)
        if r.random() < (0.6 if k.startswith("in ") else 0.1)
    }
    placement = {(s, c) for s, c in itertools.product(services, names) if s == "in" or r.random() < 0.85}
    offered = _offered(classes, edges, demand, weight)
    busy = float(r.uniform(0.1, 1.5))
    capacity = {
        (s, c): max(offered[s], 1e-3 * scale) / busy / len(names) * float(r.uniform(0.4, 1.6))
        for s, c in sorted(placement)
    }
    pairs = [(i, j) for i, j in itertools.product(names, names) if i != j]
    rtt = {pair: float(r.uniform(0.5, 80)) for pair in pairs if r.random() < 0.95}
    fails = {
        (k, c): float(r.choice([1.0, 50.0, 3000.0]))
        for k, c in itertools.product(classes, names)
        if r.random() < 0.08
    }
    return Problem(
        clusters=names,
        classes=classes,
        edges=tuple(edges),
        demand_rps=demand,
        curves=curves,
        capacity_rps=capacity,
        placement=frozenset(placement),
        rtt_ms=rtt,
        egress_usd_per_gb={pair: float(r.choice([0.0, 0.01, 0.02, 0.09])) for pair in pairs},
        usd_per_ms=float(10 ** r.uniform(-8, -5)),
        constraints=_constraints(r, names, classes, edges) if r.random() < 0.75 else Constraints(),
        failure_ms=fails if r.random() < 0.5 else {},
    )


def _calls(r: np.random.Generator) -> tuple[dict[str, str], list[Edge]]:
    """Returns classes of the services in, mid and end, and their calls: one hop, two, or a fork."""
    classes: dict[str, str] = {}
    edges: list[Edge] = []

    def call(source: str, target: str, service: str) -> None:
        classes[target] = service
        edges.append(
            Edge(source, target, float(r.choice([0.2, 1.0, 1.0, 3.0])), float(r.uniform(100, 5e3)),
                 float(r.uniform(1e3, 1e5)), float(r.choice([1.0, 1.0, 0.5, 0.05, 0.0])))
        )  # fmt: skip

    second, shared = r.random() < 0.5, r.random() < 0.3
    service = "mid" if r.random() < 0.15 else "end"  # a service may call itself
    for k in range(r.integers(1, 4)):
        classes[f"in GET /{k}"] = "in"
        call(f"in GET /{k}", f"mid GET /{k}", "mid")
        if second and r.random() < 0.6:
            source = "mid" if r.random() < 0.7 else "in"
            call(f"{source} GET /{k}", f"end GET /{'x' if shared else k}", service)
            if shared and source == "mid" and r.random() < 0.3:
                call(f"in GET /{k}", "end GET /x", service)
    return classes, edges


def _curves(r: np.random.Generator, classes: dict[str, str]) -> dict[str, Curve]:
    """Returns curves whose queueing terms are in proportion to the weights, or more or less not."""
    spread, stranger = float(r.choice(NOISES)), r.random() < 0.1
    base = {s: float(r.choice([0.0, 0.5, 2.0, 8.0])) for s in sorted(set(classes.values()))}
    curves = {}
    for k, s in classes.items():
        weight = float(np.exp(0.7 * r.normal()))
        a = base[s] * weight * float(np.exp(spread * r.normal()))
        if stranger and r.random() < 0.4:
            a = float(r.choice([0.0, 40.0]))
        curves[k] = Curve(a, float(r.uniform(-a, 10)), weight)
    return curves


def _offered(classes, edges, demand, weight) -> dict[str, float]:
    volume = dict.fromkeys(classes, 0.0)
    for (_, k), rps in demand.items():
        volume[k] += rps
    for edge in sorted(edges, key=lambda e: ("in ", "mid").index(e.source[:3])):
        volume[edge.target] += edge.calls_per_request * volume[edge.source]
    offered = dict.fromkeys(classes.values(), 0.0)
    for k, s in classes.items():
        offered[s] += weight[k] * volume[k]
    return offered


def _constraints(r: np.random.Generator, names, classes, edges) -> Constraints:
    """Returns side constraints, each with a probability of a quarter. The budget comes later."""
    routes = [(c, classes[e.source], e.target) for e in edges for c in names]

    def split(over: tuple[str, ...]) -> dict[str, float]:
        shares = r.dirichlet(np.full(len(names), 0.5))[: len(over)]
        if r.random() < 0.3:
            shares = np.eye(len(over))[r.integers(len(over))]
        return dict(zip(over, shares.tolist(), strict=True))

    limits: dict = {}
    if r.random() < 0.25:
        limits["denied"] = frozenset(
            (route[0], route[2], names[r.integers(len(names))])
            for route in (routes[r.integers(len(routes))] for _ in range(r.integers(1, 4)))
        )
    if r.random() < 0.25:
        limits["pinned"] = {route: split(names) for route in routes if r.random() < 0.3}
    if r.random() < 0.25:
        limits["min_local_share"] = float(r.choice([0.1, 0.5, 0.9]))
    if r.random() < 0.25:
        limits["max_shift"] = float(r.choice([0.05, 0.3, 0.8]))
        limits["in_force"] = {route: split(names) for route in routes if r.random() < 0.9}
    if r.random() < 0.25:
        limits["held"] = {
            route: split(names[: r.integers(1, len(names) + 1)]) for route in routes if r.random() < 0.3
        }
    if r.random() < 0.25:
        limits["utilisation_ceiling"] = float(r.choice([0.3, 0.6, 0.8, 0.95, 1.0]))
    if r.random() < 0.25:
        limits["drained"] = frozenset({names[r.integers(len(names))]})
    return Constraints(**limits)


def _slowed(r: np.random.Generator, problem: Problem) -> Problem:
    """Returns the problem, in a fifth of all cases with far longer or shorter times.

    Times of some seconds are as long as penalties assume a detour to be at most.
    """
    if r.random() > 0.2:
        return problem
    times = float(r.choice([0.01, 30.0, 1000.0]))
    return dataclasses.replace(
        problem,
        curves={k: Curve(c.a_ms * times, c.b_ms * times, c.norm_weight) for k, c in problem.curves.items()},
        rtt_ms={pair: ms * times for pair, ms in problem.rtt_ms.items()},
    )


def _weighed(r: np.random.Generator, problem: Problem) -> Problem:
    """Returns the problem, in a quarter of all cases each with latency values and with a caution.

    Some services state no seen utilisation.
    """
    entries, services = {k for _, k in problem.demand_rps}, sorted(set(problem.classes.values()))
    if r.random() < 0.25:
        values = {k: float(10 ** r.uniform(-1, 1)) for k in sorted(entries) if r.random() < 0.8}
        problem = dataclasses.replace(problem, latency_values=values)
    if r.random() < 0.25:
        seen = {s: float(r.uniform(0.1, 1.1)) for s in services if r.random() < 0.8}
        caution = float(10 ** r.uniform(-1, 1.5))
        problem = dataclasses.replace(problem, extrapolation_caution=caution, seen_utilisation=seen)
    return problem


def _with_budget(r: np.random.Generator, problem: Problem) -> Problem:
    """Returns the problem, in a quarter of all cases with a budget: part of a routing's egress."""
    if r.random() > 0.25:
        return problem
    choices = Choices(problem)
    point = r.dirichlet(np.ones(choices.count + 1))[:-1]
    paid = evaluate_shares(problem, choices.shares(point[:, None])[..., 0]).egress_usd_per_hour
    limits = dataclasses.replace(
        problem.constraints, egress_usd_per_hour=paid * float(r.choice([0.0, 0.1, 0.5, 0.95]))
    )
    return dataclasses.replace(problem, constraints=limits)
