"""Time of the exact solver over a ladder of problems. `make bench-solver`; the last line is JSON.

A problem of size (clusters, services, classes): `classes` entry classes, each with its own chain through all
services; half of the clusters are offered more than they can serve.
"""

import argparse
import json
import statistics
import sys
import time

from spillway_optimizer.problem import Curve, Edge, Problem
from spillway_optimizer.solvers.exact import Exact

LADDER = ((2, 3, 1), (4, 4, 4), (8, 6, 4), (10, 8, 8))


def problem(clusters: int, services: int, classes: int) -> Problem:
    names = [f"c{i}" for i in range(clusters)]
    tiers = [f"s{i}" for i in range(services)]
    ids = [[f"{tier} GET /{k}" for tier in tiers] for k in range(classes)]
    capacity = 1000.0
    # On average 80 % of all capacity: 1.2 and 0.4 in turn.
    demand = {
        (c, chain[0]): capacity / classes * (1.2 if i % 2 == 0 else 0.4)
        for i, c in enumerate(names)
        for chain in ids
    }
    return Problem(
        clusters=tuple(names),
        classes={name: tier for chain in ids for name, tier in zip(chain, tiers, strict=True)},
        edges=tuple(
            Edge(a, b, 1.0, 500.0, 5000.0) for chain in ids for a, b in zip(chain, chain[1:], strict=False)
        ),
        demand_rps=demand,
        curves={name: Curve(2.0, 5.0) for chain in ids for name in chain},
        capacity_rps={(tier, c): capacity for tier in tiers for c in names},
        placement=frozenset((tier, c) for tier in tiers for c in names),
        rtt_ms={(a, b): 10.0 * abs(i - j) for i, a in enumerate(names) for j, b in enumerate(names)},
        egress_usd_per_gb={(a, b): 0.02 for a in names for b in names if a != b},
        usd_per_ms=1e-7,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    rows = []
    for size in LADDER:
        instance, seconds, gap = problem(*size), [], None
        for _ in range(runs):
            began = time.perf_counter()
            gap = Exact().route(instance).relative_gap
            seconds.append(time.perf_counter() - began)
        row = dict(zip(("clusters", "services", "classes"), size, strict=True)) | {
            "median_s": round(statistics.median(seconds), 4),
            "min_s": round(min(seconds), 4),
            "max_s": round(max(seconds), 4),
            "relative_gap": gap,
        }
        rows.append(row)
        print(" ".join(f"{key}={value}" for key, value in row.items()), file=sys.stderr)
    print(json.dumps({"benchmark": "solver", "runs": runs, "sizes": rows}))


if __name__ == "__main__":
    main()
