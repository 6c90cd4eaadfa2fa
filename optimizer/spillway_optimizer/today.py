"""How calls go now: by the rules in force, and by locality failover where none fits. Pure."""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.problem import Problem
from spillway_optimizer.rules import TOTAL, RuleKey, Rules


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
    routes, ruled = set(), set()
    for e, i in zip(*np.nonzero(layout.usable.any(axis=2)), strict=True):
        service = layout.services[layout.class_service[layout.edge_source[e]]]
        key = RuleKey(layout.clusters[i], service, layout.classes[layout.edge_target[e]])
        routes.add(key)
        weights = in_force.get(key, {})
        if weights and all(c in column and layout.usable[e, i, column[c]] for c in weights):
            ruled.add(key)
            shares[e, i] = 0.0
            shares[e, i, [column[c] for c in weights]] = [w / TOTAL for w in weights.values()]
    return Today(shares, frozenset(routes), frozenset(ruled))
