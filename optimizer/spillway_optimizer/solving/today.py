"""How calls are routed now: by the rules in force, or by locality failover without one. Pure."""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, routes


@dataclass(frozen=True)
class Today:
    """The present routing.

    `shares`: shape [E, from, to]. `routes`: all routes that can be served. `ruled`: those of
    `routes` whose rule fits.
    """

    shares: np.ndarray
    routes: frozenset[RuleKey]
    ruled: frozenset[RuleKey]


def today(problem: Problem, in_force: Rules) -> Today:
    """Returns the present routing.

    A route fails over if it has no rule, or if its rule leads to a cluster that cannot serve it.
    """
    layout, shares = problem.layout, Failover().route(problem).shares.copy()
    column = {name: j for j, name in enumerate(layout.clusters)}
    every, ruled = set(), set()
    for (service, called), edges in routes(problem).items():
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[service], layout.classes[called])
            every.add(key)
            weights = in_force.get(key, {})
            if weights and all(c in column and layout.usable[edges[0], i, column[c]] for c in weights):
                ruled.add(key)
                shares[edges, i] = 0.0
                for cluster, weight in weights.items():
                    shares[edges, i, column[cluster]] = weight / TOTAL
    return Today(shares, frozenset(every), frozenset(ruled))
