"""`l3`, `l3-peak` and `c3`: routes by what callers see, without curves or capacities.

Source: Kostić et al., "L3: latency-aware load balancing in multi-cluster service mesh", Middleware
2024, sections 3 to 5. Each route, which is a class that a service of a cluster calls, is balanced
by itself: these policies know no call tree, no price and no other cluster's plans. Of the side
constraints they keep denials, pins and draining (where calls may go at all); floors and steps are
imposed on their shares as on those of all policies.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.callers.averages import RouteSignals
from spillway_optimizer.feedback.weights import Weigh, shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, routes
from spillway_optimizer.problem.solution import Solution, from_shares

_SHOWN = 5  # callers that a note names


@dataclass(frozen=True)
class Feedback:
    """Weighs destinations by their averages. All those never measured have the same weight."""

    weigh: Weigh

    def route(self, problem: Problem) -> Solution:
        layout = problem.layout
        found = np.zeros_like(layout.floor)
        for (s, k), edges in routes(problem).items():
            usable = layout.usable[edges[0]]
            for i in np.flatnonzero(usable.any(axis=1)):
                key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
                there = np.flatnonzero(usable[i])
                route = problem.callers.get(key, RouteSignals())
                found[np.ix_(np.array(edges), np.array([i]), there)] = shares(
                    route, [layout.clusters[j] for j in there], self.weigh, problem.failure_cost_ms / 1000
                )
        return from_shares(problem, found, _notes(problem))


def _notes(problem: Problem) -> tuple[str, ...]:
    """Returns by which measure the callers' requests in flight count, if there are any."""
    reported: dict[bool, set[str]] = {True: set(), False: set()}
    for (cluster, service, _), route in problem.callers.items():
        for signals in route.destinations.values():
            reported[signals.reported].add(f"{service} in {cluster}")
    measures = {True: "as Envoys report them", False: "by Little's law, without calls that hang"}
    return tuple(
        f"requests in flight {measures[by]}: {_listed(sorted(callers))}"
        for by, callers in reported.items()
        if callers
    )


def _listed(callers: list[str]) -> str:
    more = len(callers) - _SHOWN
    return ", ".join(callers[:_SHOWN]) + (f", and {more} more" if more > 0 else "")
