"""How calls go now: by the rules in force, and by locality failover where none fits. Pure."""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, routes


@dataclass(frozen=True)
class Today:
    """`shares` [E, from, to]. `ruled`: the `routes` that have a rule which fits."""

    shares: np.ndarray
    routes: frozenset[RuleKey]
    ruled: frozenset[RuleKey]


def today(problem: Problem, in_force: Rules) -> Today:
    """A route without a rule, or with one that leads where it cannot be served, fails over."""
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
