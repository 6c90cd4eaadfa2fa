"""Problems whose routes may use only certain destinations."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, routes


def within(problem: Problem, destinations: Mapping[Route, Shares]) -> Problem:
    """Returns the problem in which routes may use only `destinations`, each with its least share.

    Routes that are not listed are limited as in `problem`. The result has no discrete limits of its
    own.
    """
    free = replace(problem.constraints, min_share=0.0, max_destinations=None, whole=frozenset())
    return _with(replace(problem, constraints=free), destinations)


def in_steps(problem: Problem, destinations: Mapping[Route, Shares]) -> Problem:
    """Returns the problem in which calls leave all but `destinations` by the maximum shift.

    Only routes of which the maximum shift keeps other destinations than the given ones are limited
    to them.
    """
    layout, c = problem.layout, problem.constraints
    if c.max_shift >= 1 or not c.in_force or not destinations:
        return problem
    leaving: dict[Route, Shares] = {}
    for (service, called), edges in routes(problem).items():
        for i, source in enumerate(layout.clusters):
            route = RuleKey(source, layout.services[service], layout.classes[called])
            kept = {layout.clusters[j] for j in np.flatnonzero(layout.floor[edges[0], i])}
            if route in destinations and not kept <= destinations[route].keys():
                leaving[route] = destinations[route]
    return _with(problem, leaving) if leaving else problem


def _with(problem: Problem, destinations: Mapping[Route, Shares]) -> Problem:
    destinations = {**problem.constraints.destinations, **destinations}
    return replace(problem, constraints=replace(problem.constraints, destinations=destinations))
