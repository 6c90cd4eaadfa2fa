"""How fast the fast solver is: SLATE's grid (section 5.4, figure 13a) against the whole formulation
in one linear programme, larger meshes, and a warm start. `make bench-optimizer`; the last line is
JSON.

Fast and monolithic alternate on each instance. Times are wall-clock seconds of the solve alone,
medians; the gap is what the fast solver certifies. GAP is asked of both.
"""

import argparse
import dataclasses
import json
import logging
import resource
import statistics
import sys
import time

import numpy as np
from instances import Size, by_application, noisy, problem
from monolithic import Monolithic, solve
from ortools.math_opt.python import mathopt
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.process.states import States
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.service.following import Following
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import relaxation
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.workers.parallel import Parallel

GAP = 1e-3
LARGEST = Size(clusters=10, classes=10, depth=6, services=16)
# One dimension at a time, from the middle of the paper's grid; then its corners.
GRID = {
    "clusters": [Size(clusters, 5, 4, 16) for clusters in (3, 5, 7, 10)],
    "classes": [Size(7, classes, 4, 16) for classes in (1, 4, 7, 10)],
    "depth": [Size(7, 5, depth, 16) for depth in (2, 3, 4, 6)],
}
PUBLISHED_S = 22.0  # seconds that Gurobi takes for an instance of the size of LARGEST, figure 13a
PUBLISHED_RUNS = 5  # of either kind, at least
SMALL = Size(clusters=2, classes=3, depth=3, services=5)
NOISES = (0.05, 0.3, 0.8)  # standard deviation of log(a_ms); the JSON line has the second
LARGE = Size(clusters=50, classes=1, depth=4, services=20)  # 1 000 endpoints
HUGE = Size(clusters=100, classes=2, depth=3, services=10, applications=20)  # 40 000 endpoints
HUGE_S = 60.0  # for all applications of HUGE, where curves are fitted class by class
MIDDLE = dataclasses.replace(HUGE, clusters=20)  # 8 000 endpoints
AUDIT_S = 10.0
SOLVERS = (mathopt.SolverType.HIGHS, mathopt.SolverType.GLOP)


def fast(instance: Problem, solver: Fast | None = None) -> tuple[float, float]:
    """Returns the seconds of a solve and its certified gap.

    The arrays of the problem are made before the clock starts, as they are for the other solver.
    """
    instance.layout  # noqa: B018
    began = time.perf_counter()
    solution = (solver or Fast(Stop(relative_gap=GAP))).route(instance)
    return time.perf_counter() - began, solution.relative_gap


def against(size: Size, runs: int) -> dict:
    """Compares the fast solver with the quicker of the open solvers, alternating: A B A B."""
    instance = problem(size)
    convex = relaxation(instance)
    times: list[float] = []
    others: dict[str, list[Monolithic]] = {s.name: [] for s in SOLVERS}
    gap = 0.0
    for _ in range(runs):
        for solver in SOLVERS:
            seconds, gap = fast(instance)
            times.append(seconds)
            others[solver.name].append(solve(convex, solver))
    medians = {name: statistics.median(o.seconds for o in found) for name, found in others.items()}
    best = min(medians, key=medians.get)
    return {
        "size": size,
        "fast_s": statistics.median(times),
        "fast_spread_s": [min(times), max(times)],
        "gap": gap,
        "exact_s": medians[best],
        "exact_gap": others[best][0].gap,
        "exact_by": best,
        "speedup": medians[best] / statistics.median(times),
    }


def warm_ratio(runs: int) -> tuple[float, float, float]:
    """Returns the ratio of warm to cold, the warm and the cold time in seconds, as medians.

    The warm time is of a re-solve after every demand changed by up to 10 % either way.
    """
    base, r = problem(LARGEST), np.random.default_rng(1)
    warm, cold = [], []
    for _ in range(runs):
        changed = {key: rps * float(r.uniform(0.9, 1.1)) for key, rps in base.demand_rps.items()}
        instance = dataclasses.replace(base, demand_rps=changed)
        solver = Fast(Stop(relative_gap=GAP))
        solver.route(base)
        warm.append(fast(instance, solver)[0])
        cold.append(fast(instance)[0])
    warm_s, cold_s = statistics.median(warm), statistics.median(cold)
    return warm_s / cold_s, warm_s, cold_s


def published(runs: int) -> dict[str, float]:
    """Compares the paper's time with ours for its largest instance, and prints the table.

    Ours is solved as it is, which is convex, and with curves fitted class by class, which is not:
    A B A B. Each run has other noise. The requested gap is that of the service.
    """
    base, noise = problem(LARGEST), NOISES[1]
    found: dict[str, list[tuple[float, float]]] = {"convex": [], "nonconvex": []}
    for seed in range(runs):
        found["convex"].append(fast(base, Fast()))
        found["nonconvex"].append(fast(noisy(base, noise, seed), Fast()))
    print(f"{LARGEST.clusters} clusters, {LARGEST.classes} classes, depth {LARGEST.depth}, ", end="")
    print(f"{LARGEST.services} services, {LARGEST.endpoints} endpoints; medians of {runs} runs")
    print(f"{'solved':<36}{'seconds':>9}{'least':>9}{'most':>9}{'gap':>10}{'most':>10}")
    print(f"{'the paper, Gurobi':<36}{PUBLISHED_S:>9.1f}")
    row: dict[str, float] = {}
    names = {"convex": "Spillway, convex", "nonconvex": f"Spillway, noise {noise:.0%}: not convex"}
    for key, name in names.items():
        seconds, gaps = (sorted(values) for values in zip(*found[key], strict=True))
        middle, gap = statistics.median(seconds), statistics.median(gaps)
        print(f"{name:<36}{middle:>9.3f}{seconds[0]:>9.3f}{seconds[-1]:>9.3f}{gap:>10.3%}{gaps[-1]:>10.3%}")
        row |= {f"published_{key}_s": round(middle, 4), f"published_{key}_gap": round(gap, 6)}
    return row


def not_convex(size: Size, spread: float, runs: int) -> tuple[list[float], list[float]]:
    """Returns seconds and certified gaps, sorted, where curves were fitted class by class.

    Each run has other noise.
    """
    found = [fast(noisy(problem(size), spread, seed), Fast()) for seed in range(runs)]
    return sorted(seconds for seconds, _ in found), sorted(gap for _, gap in found)


def audited(size: Size, spread: float, runs: int) -> tuple[list[float], list[float], list[float]]:
    """Returns seconds, proven gaps and savings of the mixed-integer programmes, sorted.

    They have AUDIT_S seconds. The saving is what their routing costs less than the fast solver's,
    relative to that.
    """
    found = []
    for seed in range(runs):
        instance = noisy(problem(size, seed), spread, seed)
        began = time.perf_counter()
        exact = Exact(Stop(GAP, 300, AUDIT_S)).route(instance)
        seconds = time.perf_counter() - began
        cost = Fast().route(instance).evaluation.usd_per_hour
        found.append((seconds, exact.relative_gap, 1.0 - exact.evaluation.usd_per_hour / cost))
    return tuple(sorted(values) for values in zip(*found, strict=True))


def routed(problems: dict[str, Problem], stop: Stop, parallel: bool) -> tuple[float, float]:
    """Returns the seconds of a cold solve of all applications as the service does it, and its gap.

    The gap is that of the sum of their costs to the sum of their bounds. With `parallel`, worker
    processes run before the clock starts, as in all rounds of the service but the first.
    """
    states = States(logging.getLogger("benchmark"))
    following = Following(None, SPILLWAY, stop, states)
    workers = Parallel(0 if parallel else 1, stop.seconds, following.keep, states)
    try:
        if parallel:
            workers.start(wait_s=60.0)
            workers.took = dict.fromkeys(problems, 1.0)  # so that workers are worth it
        began = time.perf_counter()
        found = route_all(problems, following.router, workers)
        seconds = time.perf_counter() - began
    finally:
        workers.close()
    solutions = [solved.solution for solved in found.values()]
    cost = sum(s.evaluation.usd_per_hour for s in solutions)
    beyond = sum(s.beyond_usd_per_hour for s in solutions)
    bound = sum(s.bound_usd_per_hour for s in solutions)
    return seconds, max(0.0, cost + beyond - bound) / cost


def in_parallel(runs: int) -> dict[str, float]:
    """Compares MIDDLE with and without worker processes, alternating: A B A B. Prints a line."""
    problems = by_application(noisy(problem(MIDDLE), NOISES[1]))
    stop = Stop(relative_gap=GAP, seconds=HUGE_S)
    found = [(routed(problems, stop, False), routed(problems, stop, True)) for _ in range(runs)]
    alone, together = (statistics.median(pair[n][0] for pair in found) for n in (0, 1))
    print(
        f"{MIDDLE.applications} applications, {MIDDLE.clusters} clusters, noise {NOISES[1]:.0%}: "
        f"{alone:.2f} s one after the other, {together:.2f} s in parallel: {alone / together:.2f} times"
    )
    return {"parallel_ratio": round(alone / together, 2)}


def show(name: str, row: dict) -> None:
    """Prints one row of the table."""
    size = row["size"]
    print(
        f"{name:<10}{size.clusters:>9}{size.classes:>8}{size.depth:>6}{size.endpoints:>10}{row['fast_s']:>9.4f}"
        f"{row['gap']:>10.1e}{row['exact_s']:>9.2f}{row['exact_gap']:>10.1e} {row['exact_by']:<6}{row['speedup']:>7.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--published", action="store_true", help="only the paper's largest instance")
    parser.add_argument("--no-huge", action="store_true", help="leaves out the largest meshes")
    arguments = parser.parse_args()
    fast(problem(Size(3, 1, 2, 4)))  # imports and first calls
    table = published(max(PUBLISHED_RUNS, arguments.runs))
    if arguments.published:
        print(json.dumps(table))
        return
    print(
        f"{'grows':<10}{'clusters':>9}{'classes':>8}{'depth':>6}{'endpoints':>10}{'fast s':>9}{'gap':>10}",
        end="",
    )
    print(f"{'LP s':>9}{'gap':>10} {'by':<6}{'times':>7}")
    for name, sizes in GRID.items():
        for size in sizes:
            show(name, against(size, arguments.runs))
    largest = against(LARGEST, arguments.runs)
    show("largest", largest)
    low, high = largest["fast_spread_s"]
    print(f"fast at the largest: {low:.4f} to {high:.4f} s over {2 * arguments.runs} runs")
    ratio, warm, cold = warm_ratio(4 * arguments.runs)
    print(f"warm after 10 %: {warm:.4f} s against {cold:.4f} s cold: {ratio:.2f}")
    found = table | {key: round(largest[key], 5) for key in ("speedup", "fast_s", "exact_s", "gap")}
    found["warm_ratio"] = round(ratio, 3)
    for size in (SMALL, LARGEST):
        for spread in NOISES:
            seconds, gaps = not_convex(size, spread, 3 * arguments.runs)
            print(
                f"not convex, {size.clusters} x {size.classes} x {size.services}, noise {spread:.0%}: "
                f"{statistics.median(seconds):.2f} s (most {seconds[-1]:.2f}), "
                f"gap {statistics.median(gaps):.2%} (most {gaps[-1]:.2%})",
                flush=True,
            )
            if size is LARGEST and spread == NOISES[1]:
                found["nonconvex_s"] = round(statistics.median(seconds), 3)
                found["nonconvex_gap"] = round(statistics.median(gaps), 5)
    for spread in NOISES:
        seconds, gaps, savings = audited(SMALL, spread, 2 * arguments.runs)
        print(
            f"audited, {SMALL.clusters} x {SMALL.classes} x {SMALL.services}, noise {spread:.0%}: "
            f"{statistics.median(seconds):.1f} s, gap {statistics.median(gaps):.2%} (most {gaps[-1]:.2%}), "
            f"saves at most {savings[-1]:.2%}",
            flush=True,
        )
        if spread == NOISES[1]:
            found["audit_gap"] = round(statistics.median(gaps), 5)
    if not arguments.no_huge:
        for key, size in (("large", LARGE), ("huge", HUGE)):
            instance = problem(size)
            times = [fast(instance) for _ in range(arguments.runs)]
            seconds, gap = statistics.median(t for t, _ in times), max(g for _, g in times)
            print(
                f"{key}: {size.clusters} clusters, {size.endpoints} endpoints: {seconds:.2f} s, gap {gap:.1e}"
            )
            found[f"{key}_s"], found[f"{key}_gap"] = round(seconds, 3), gap
        found |= in_parallel(arguments.runs)
        applications = by_application(noisy(problem(HUGE), NOISES[1]))
        seconds, gap = routed(applications, Stop(relative_gap=GAP, seconds=HUGE_S), True)
        print(f"huge, not convex, noise {NOISES[1]:.0%}: {seconds:.1f} s, gap {gap:.2%}")
        found["huge_nonconvex_s"], found["huge_nonconvex_gap"] = round(seconds, 1), round(gap, 5)
        found["huge_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
