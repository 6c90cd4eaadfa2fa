"""Rules as plain weights: what a solution becomes, and what an old ruleset is priced by."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, traffic_class

from spillway_optimizer import ProblemError
from spillway_optimizer.problem import Problem

TOTAL = names.VALUE_WEIGHT_TOTAL


class RuleKey(NamedTuple):
    source_cluster: str
    source_service: str
    class_id: str


Weights = Mapping[str, int]  # destination cluster -> parts of TOTAL, all above 0
Rules = Mapping[RuleKey, Weights]


def of_ruleset(ruleset: Ruleset) -> Rules:
    return {
        RuleKey(rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class)): {
            d.cluster: d.weight for d in rule.destinations if d.weight > 0
        }
        for rule in ruleset.rules
    }


def of_shares(problem: Problem, shares: np.ndarray, flows: np.ndarray) -> Rules:
    """Merges, by volume, the edges that share an outbound route (same service, same callee class), and
    rounds to integers that sum to TOTAL. shares and flows: [E, from, to]."""
    layout = problem.layout
    rules = {}
    for (s, k), edges in sorted(_routes(problem).items()):
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            merged = flows[edges, i].sum(axis=0)
            if merged.sum() <= 0:
                merged = shares[edges[0], i]
            weights = largest_remainder(merged / merged.sum())
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            rules[key] = {layout.clusters[j]: int(w) for j, w in enumerate(weights) if w > 0}
    return dict(sorted(rules.items()))


def to_shares(problem: Problem, rules: Rules) -> np.ndarray:
    """[E, from, to]. Raises ProblemError when a route has no rule, or its rule leads where the class
    cannot be served (any more)."""
    layout = problem.layout
    column = {name: j for j, name in enumerate(layout.clusters)}
    shares, wrong = np.zeros(layout.usable.shape), []
    for (s, k), edges in _routes(problem).items():
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            weights = rules.get(key)
            if weights is None:
                wrong.append(f"no rule for {key}")
                continue
            for cluster, weight in weights.items():
                j = column.get(cluster)
                if j is None or not layout.usable[edges[0], i, j]:
                    wrong.append(f"{key} leads to {cluster!r}, which cannot serve it")
                else:
                    shares[edges, i, j] = weight / TOTAL
    if wrong:
        raise ProblemError("; ".join(wrong))
    return shares


def largest_remainder(shares: np.ndarray, total: int = TOTAL) -> np.ndarray:
    """Integers that sum to `total`, each less than one away from shares * total (Hamilton's method)."""
    exact = np.asarray(shares, dtype=float) * (total / float(np.sum(shares)))
    floor = np.floor(exact + 1e-9).astype(int)
    missing = total - int(floor.sum())
    order = np.argsort(-(exact - floor), kind="stable")
    floor[order[:missing]] += 1
    return floor


def max_difference(before: Rules, after: Rules) -> int:
    """Largest change of any weight, parts of TOTAL; a rule that comes or goes changes all of it."""
    if before.keys() != after.keys():
        return TOTAL
    return max(
        (
            abs(before[key].get(cluster, 0) - after[key].get(cluster, 0))
            for key in after
            for cluster in {*before[key], *after[key]}
        ),
        default=0,
    )


def _routes(problem: Problem) -> dict[tuple[int, int], list[int]]:
    """(source service, callee class) -> its edges: Envoy sees the callee's class, not the caller's."""
    layout = problem.layout
    routes: dict[tuple[int, int], list[int]] = {}
    for e, (source, target) in enumerate(zip(layout.edge_source, layout.edge_target, strict=True)):
        routes.setdefault((int(layout.class_service[source]), int(target)), []).append(e)
    return routes
