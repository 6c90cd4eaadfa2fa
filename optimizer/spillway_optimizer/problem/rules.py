"""Rules as plain weights: what a solution becomes, and what an old ruleset is priced by."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, traffic_class

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Problem

TOTAL = names.VALUE_WEIGHT_TOTAL


# Parts of TOTAL: a rule counts as changed by somebody else when a weight differs by more. Less is rounding.
OTHERS_DELTA = 200


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


def merge(problem: Problem, shares: np.ndarray, flows: np.ndarray) -> np.ndarray:
    """[E, from, to] shares after merging, by volume, the edges that share an outbound route (same service, same
    callee class): Envoy sees the callee's class, not the caller's. Rows without flow keep the first edge's."""
    merged = np.zeros_like(shares)
    for edges in routes(problem).values():
        volume = flows[edges].sum(axis=0)
        total = volume.sum(axis=1, keepdims=True)
        merged[edges] = np.where(total > 0, volume / np.where(total > 0, total, 1.0), shares[edges[0]])
    return merged


def rounded(problem: Problem, merged: np.ndarray, thrifty: bool = False) -> Rules:
    """Integers that sum to TOTAL, none below its floor; a pinned route is exactly its pin. `merged` [E, from, to]:
    one split per route. Rows that are closed get no rule. Parts that rounding leaves over go to the largest
    remainders or, when `thrifty`, to the destination in use that costs least egress."""
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


def imposed(problem: Problem, key: RuleKey, e: int, i: int) -> np.ndarray | None:
    """The shares [to] of row i of edge e that no policy can choose: of a pin, or of a step home. None: free."""
    layout, pin = problem.layout, problem.constraints.pinned.get(key)
    if pin is not None:
        return _pinned(layout, pin, e, i)
    step = step_home(problem, key, {layout.clusters[j] for j in np.flatnonzero(layout.usable[e, i])})
    return None if step is None else np.array([step.get(c, 0) / TOTAL for c in layout.clusters])


def step_home(problem: Problem, key: RuleKey, usable: set[str]) -> Weights | None:
    """The one rule that is possible where less stays local than must, and more than may move at once: a whole step
    home from what is in force. None: nothing of the kind. The maximum shift has the last word, as it has with the
    publisher."""
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
    clusters = sorted(shares)
    weights = largest_remainder(np.array([shares[c] for c in clusters]))
    return {c: int(w) for c, w in zip(clusters, weights, strict=True) if w > 0}


def to_shares(problem: Problem, rules: Rules) -> np.ndarray:
    """[E, from, to]. Raises ProblemError when a route has no rule, or its rule leads where the class
    cannot be served (any more). Of a pin, what cannot be served goes to its other destinations."""
    layout = problem.layout
    column = {name: j for j, name in enumerate(layout.clusters)}
    shares, wrong = np.zeros(layout.usable.shape), []
    for (s, k), edges in routes(problem).items():
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            if key in problem.constraints.pinned:
                shares[edges, i] = _pinned(layout, problem.constraints.pinned[key], edges[0], i)
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


def _pinned(layout: Layout, pin: Mapping[str, float], e: int, i: int) -> np.ndarray:
    """What becomes of a pinned row [to]: the pin over what can be served; without any such destination relays
    serve the nearest."""
    row = np.array([pin.get(cluster, 0.0) for cluster in layout.clusters]) * layout.usable[e, i]
    if row.sum() > 0:
        return row / row.sum()
    nearest = np.argmin(np.where(layout.usable[e, i], layout.rtt[i], np.inf))
    return np.eye(len(layout.clusters))[nearest]


def round_above(shares: np.ndarray, floor: np.ndarray, dear: np.ndarray | None = None) -> np.ndarray:
    """Integers in proportion to `shares` [to] that sum to TOTAL and are at least floor * TOTAL (shares of TOTAL;
    floors that no integers can keep are kept to less than one part). `dear` [to]: see largest_remainder."""
    least = np.ceil(floor * TOTAL - 1e-6).astype(int)
    if least.sum() > TOTAL:
        least = np.floor(floor * TOTAL + 1e-6).astype(int)
    left = TOTAL - int(least.sum())
    above = np.maximum(np.asarray(shares, dtype=float) * TOTAL - least, 0.0)
    if left == 0 or above.sum() <= 0:
        return least + largest_remainder(floor, left) if left else least
    return least + largest_remainder(above, left, dear)


def largest_remainder(shares: np.ndarray, total: int = TOTAL, dear: np.ndarray | None = None) -> np.ndarray:
    """Integers that sum to `total`, each less than one away from shares * total (Hamilton's method). With `dear`
    all that is left over goes to the destination with a share that is least dear."""
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
    """The rules of both of which a weight differs by more than `delta`, and those that came or went."""
    both = before.keys() & after.keys()
    moved = {key for key in both if max_difference({key: before[key]}, {key: after[key]}) > delta}
    return moved | (before.keys() ^ after.keys())


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


def routes(problem: Problem) -> dict[tuple[int, int], list[int]]:
    """(source service, callee class) -> its edges, by index."""
    layout = problem.layout
    found: dict[tuple[int, int], list[int]] = {}
    for e, (source, target) in enumerate(zip(layout.edge_source, layout.edge_target, strict=True)):
        found.setdefault((int(layout.class_service[source]), int(target)), []).append(e)
    return found


def stepped(now: Weights, wanted: Weights, max_shift: float) -> Weights:
    """`wanted`, or as far on the way there from `now` as `max_shift` of the calls may move."""
    clusters = sorted({*now, *wanted})
    start, end = (np.array([some.get(c, 0) for c in clusters], dtype=float) for some in (now, wanted))
    moved = float(np.maximum(end - start, 0.0).sum())
    if moved <= max_shift * TOTAL:
        return wanted
    weights = largest_remainder(start + (end - start) * max_shift * TOTAL / moved)
    return {c: int(w) for c, w in zip(clusters, weights, strict=True) if w > 0}
