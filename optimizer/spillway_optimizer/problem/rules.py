"""Rules as integer weights.

A solution is rounded to rules. An old ruleset becomes shares again, so that it can be priced.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, traffic_class

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.arrays import Floats, Ints
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Problem

TOTAL = names.VALUE_WEIGHT_TOTAL


# In parts of TOTAL. A rule counts as changed by somebody else when a weight differs by more than
# this. Smaller differences are rounding.
OTHERS_DELTA = 200


class RuleKey(NamedTuple):
    """What a rule applies to: calls of a class, made by a service in a cluster."""

    source_cluster: str
    source_service: str
    class_id: str


Weights = Mapping[str, int]  # destination cluster -> parts of TOTAL, all above 0
Rules = Mapping[RuleKey, Weights]


def of_ruleset(ruleset: Ruleset) -> Rules:
    """Returns the rules of a published ruleset, without destinations of weight 0."""
    return {
        RuleKey(rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class)): {
            d.cluster: d.weight for d in rule.destinations if d.weight > 0
        }
        for rule in ruleset.rules
    }


def merge(problem: Problem, shares: Floats, flows: Floats) -> Floats:
    """Merges the edges that share an outbound route, by volume. Returns shares [E, from, to].

    Edges with the same source service and the same callee class share a route: Envoy sees the
    callee's class, not the caller's. Rows without flow keep the shares of the route's first edge.
    """
    merged = np.zeros_like(shares)
    for edges in routes(problem).values():
        volume = flows[edges].sum(axis=0)
        total = volume.sum(axis=1, keepdims=True)
        merged[edges] = np.where(total > 0, volume / np.where(total > 0, total, 1.0), shares[edges[0]])
    return merged


def rounded(problem: Problem, merged: Floats, thrifty: bool = False) -> Rules:
    """Rounds shares to rules: integers that sum to TOTAL, none below its floor.

    `merged` [E, from, to] has one split per route. A pinned route gets exactly its pin. A route
    that can only step home gets that step (see step_home). Closed rows, and routes that are held
    without a rule, get no rule. Parts that rounding leaves over go to the largest remainders. With
    `thrifty` they go to the destination in use that costs least egress.
    """
    layout, rules = problem.layout, {}
    for (s, k), edges in sorted(routes(problem).items()):
        e = edges[0]
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            if key in problem.constraints.pinned:
                rules[key] = of_pin(problem.constraints.pinned[key])
                continue
            if key in problem.constraints.unruled and not layout.free[e, i].any():
                continue
            step = step_home(problem, key, {layout.clusters[j] for j in np.flatnonzero(layout.usable[e, i])})
            if step is not None:
                rules[key] = step
                continue
            dear = layout.egress[edges, i].max(axis=0) if thrifty else None
            weights = round_above(merged[e, i] * layout.free[e, i], layout.floor[e, i], dear)
            rules[key] = {layout.clusters[j]: int(w) for j, w in enumerate(weights) if w > 0}
    return dict(sorted(rules.items()))


def imposed(problem: Problem, key: RuleKey, e: int, i: int) -> Floats | None:
    """Returns the shares [to] of row `i` of edge `e` that no policy can choose; None: it can.

    Such shares come from a pin or from a step home (see step_home).
    """
    layout, pin = problem.layout, problem.constraints.pinned.get(key)
    if pin is not None:
        return _pinned(layout, pin, e, i)
    step = step_home(problem, key, {layout.clusters[j] for j in np.flatnonzero(layout.usable[e, i])})
    return None if step is None else np.array([step.get(c, 0) / TOTAL for c in layout.clusters])


def step_home(problem: Problem, key: RuleKey, usable: set[str]) -> Weights | None:
    """Returns the only possible rule of a route that needs more than one step to be local enough.

    Such a route keeps less local than it must, and would have to move more than the maximum shift.
    The rule moves the whole maximum shift home, starting from the shares in force. The maximum
    shift has priority over the minimum local share, as in the publisher. Returns None for all other
    routes.
    """
    c, local = problem.constraints, key.source_cluster
    before = c.in_force.get(key)
    if before is None or c.max_shift >= 1 or local not in usable or not usable >= before.keys():
        return None
    if key in c.held:
        return None
    home = round((before.get(local, 0.0) + c.max_shift) * TOTAL)
    if home >= round(c.min_local_share * TOTAL):
        return None
    others = sorted(before.keys() - {local})
    weights = largest_remainder(np.array([before[to] for to in others]), TOTAL - home)
    return {local: home, **{to: int(w) for to, w in zip(others, weights, strict=True) if w > 0}}


def of_pin(shares: Mapping[str, float]) -> Weights:
    """Returns the weights of a pin."""
    clusters = sorted(shares)
    weights = largest_remainder(np.array([shares[c] for c in clusters]))
    return {c: int(w) for c, w in zip(clusters, weights, strict=True) if w > 0}


def to_shares(problem: Problem, rules: Rules) -> Floats:
    """Returns the shares [E, from, to] of rules.

    Raises ProblemError when a route has no rule, or its rule leads where the class cannot be served
    (any more). If some destinations of a pin cannot serve, the pin's other destinations get their
    calls. A route that is held without a rule gets its floor.
    """
    layout = problem.layout
    column = {name: j for j, name in enumerate(layout.clusters)}
    shares, wrong = np.zeros(layout.usable.shape), []
    for (s, k), edges in routes(problem).items():
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            if key in problem.constraints.pinned:
                shares[edges, i] = _pinned(layout, problem.constraints.pinned[key], edges[0], int(i))
                continue
            weights = rules.get(key)
            if weights is None and key in problem.constraints.unruled and not layout.free[edges[0], i].any():
                shares[edges, i] = layout.floor[edges[0], i]
                continue
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


def _pinned(layout: Layout, pin: Mapping[str, float], e: int, i: int) -> Floats:
    """Returns the shares [to] of a pinned row: the pin, limited to destinations that can serve.

    If there is none, the nearest usable cluster gets everything, as relays do it.
    """
    row = np.array([pin.get(cluster, 0.0) for cluster in layout.clusters]) * layout.usable[e, i]
    if row.sum() > 0:
        served: Floats = row / row.sum()
        return served
    nearest = np.argmin(np.where(layout.usable[e, i], layout.rtt[i], np.inf))
    alone: Floats = np.eye(len(layout.clusters))[nearest]
    return alone


def round_above(shares: Floats, floor: Floats, dear: Floats | None = None) -> Ints:
    """Rounds `shares` [to] to integers that sum to TOTAL, each at least floor * TOTAL.

    `floor` [to] holds fractions of TOTAL, and the shares decide about the rest in proportion.
    Floors that no integers can keep are missed by less than one part. `dear` [to]: see
    largest_remainder.
    """
    least = np.ceil(floor * TOTAL - 1e-6).astype(int)
    if least.sum() > TOTAL:
        least = np.floor(floor * TOTAL + 1e-6).astype(int)
    left = TOTAL - int(least.sum())
    above = np.maximum(np.asarray(shares, dtype=float) * TOTAL - least, 0.0)
    if left == 0 or above.sum() <= 0:
        return least + largest_remainder(floor, left) if left else least
    return least + largest_remainder(above, left, dear)


def largest_remainder(shares: Floats, total: int = TOTAL, dear: Floats | None = None) -> Ints:
    """Returns integers that sum to `total`, in proportion to `shares` (Hamilton's method).

    Each is less than one away from shares * total. With `dear`, one destination gets everything
    that rounding leaves over: the one with the lowest value of `dear` among those with a share.
    """
    exact = np.asarray(shares, dtype=float) * (total / float(np.sum(shares)))
    floor = np.floor(exact + 1e-9).astype(int)
    missing = total - int(floor.sum())
    if dear is not None and missing:
        floor[int(np.argmin(np.where(exact > 0, dear, np.inf)))] += missing
        return floor
    order = np.argsort(-(exact - floor), kind="stable")
    floor[order[:missing]] += 1
    return floor


def changed(before: Rules, after: Rules, delta: int = OTHERS_DELTA) -> set[RuleKey]:
    """Returns the keys of rules that changed.

    A rule changed if any of its weights differs by more than `delta`, or if only one side has it.
    """
    both = before.keys() & after.keys()
    moved = {key for key in both if max_difference({key: before[key]}, {key: after[key]}) > delta}
    return moved | (before.keys() ^ after.keys())


def max_difference(before: Rules, after: Rules) -> int:
    """Returns the largest change of any weight, in parts of TOTAL.

    Returns TOTAL when a rule comes or goes.
    """
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


def routes(problem: Problem) -> dict[tuple[int, int], list[int]]:
    """Maps each (source service, callee class) to its edges, all by index."""
    layout = problem.layout
    found: dict[tuple[int, int], list[int]] = {}
    for e, (source, target) in enumerate(zip(layout.edge_source, layout.edge_target, strict=True)):
        found.setdefault((int(layout.class_service[source]), int(target)), []).append(e)
    return found


def stepped(now: Weights, wanted: Weights, max_shift: float) -> Weights:
    """Returns `wanted` if it moves at most `max_shift` of the calls away from `now`.

    Otherwise returns the point on the way to `wanted` at which `max_shift` of the calls have moved.
    """
    clusters = sorted({*now, *wanted})
    start, end = (np.array([some.get(c, 0) for c in clusters], dtype=float) for some in (now, wanted))
    moved = float(np.maximum(end - start, 0.0).sum())
    if moved <= max_shift * TOTAL:
        return wanted
    weights = largest_remainder(start + (end - start) * max_shift * TOTAL / moved)
    return {c: int(w) for c, w in zip(clusters, weights, strict=True) if w > 0}
