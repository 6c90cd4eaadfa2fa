"""Verifies that integer rules satisfy a problem's constraints. Pure.

Every ruleset is verified before it leaves the process. The checks are deliberately derived again
from the constraints themselves, not from the bounds that solvers use: a mistake in those bounds
must not verify itself.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from spillway_optimizer import ProblemError
from spillway_optimizer.policies.projection import rounding
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import Evaluation, evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import (
    TOTAL,
    RuleKey,
    Rules,
    Weights,
    of_pin,
    routes,
    step_home,
    to_shares,
)

# Relative. Budgets and ceilings are satisfied by fractions, but rules are integers.
ROUNDING_SLACK = 1e-3
# Relative. What stays local for an autoscaler follows demand and capacity, which are noisy. A rule
# in force may keep this much less, unless all calls should stay.
_KEPT_SLACK = 0.05


def verify(
    problem: Problem, rules: Rules, least_bad: Evaluation | None, slack: float = ROUNDING_SLACK
) -> list[str]:
    """Returns what is wrong with the rules, each with the rule, the value and what is allowed.

    Empty if the rules are sound. `least_bad` evaluates the best rules of the policy's answer.
    Budget and ceiling may be exceeded as far as it exceeds them itself: then no answer satisfies
    them, or the policy does not know them (`exceeded` reports it). On top of that, the amount that
    rounding to integers can add is allowed.
    """
    found = [
        f"{_name(key)}: {finding}"
        for key, weights in rules.items()
        for finding in _rule(problem, key, weights)
    ]
    found += _complete(problem, rules)
    if found:
        return found
    try:
        shares = to_shares(problem, rules)
    except ProblemError as error:
        return [str(error)]
    c = problem.constraints
    if c.egress_usd_per_hour is None and c.utilisation_ceiling is None:
        return []
    return _limits(problem, evaluate_shares(problem, shares), least_bad, slack, rounding(problem, shares))


def exceeded(problem: Problem, evaluation: Evaluation) -> list[str]:
    """Returns the limits that these rules exceed, as notes."""
    return [f"least bad: {finding}" for finding in _limits(problem, evaluation, None, ROUNDING_SLACK)]


def beyond_limits(constraints: Constraints, rules: Rules, instead: Rules) -> list[str]:
    """Returns the rules that break a limit on destinations which `instead` keeps, or breaks less.

    Floors, pins and held shares come before these limits, so `instead` may break some itself. It
    breaks a limit less where fewer calls go beyond the destinations that a route steps towards.
    """
    found = []
    for key in rules.keys() & instead.keys():
        kept = _destinations(constraints, key, instead[key])
        steps = _beyond(constraints, key, rules[key]) > _beyond(constraints, key, instead[key])
        found += [
            f"{_name(key)}: {finding}"
            for limit, finding in _destinations(constraints, key, rules[key]).items()
            if limit not in kept or (steps and limit != "share")
        ]
    return sorted(found)


def _beyond(c: Constraints, key: RuleKey, weights: Weights) -> int:
    """Returns how many parts of a rule go beyond the destinations that the route may have."""
    chosen = c.destinations.get(key)
    return 0 if chosen is None else sum(weight for to, weight in weights.items() if to not in chosen)


def _destinations(c: Constraints, key: RuleKey, weights: Weights) -> dict[str, str]:
    """Returns which limits on destinations a rule breaks, with a finding for each."""
    used, least = sorted(to for to, weight in weights.items() if weight), round(c.min_share * TOTAL)
    small = [to for to in used if weights[to] < least - 1]  # rounding may take one part
    found = {}
    if key.class_id in c.whole and len(used) > 1:
        found["whole"] = f"its class stays whole, and it has {', '.join(used)}"
    if c.max_destinations is not None and len(used) > c.max_destinations:
        found["count"] = f"{len(used)} destinations; maximum_destinations is {c.max_destinations}"
    if small:
        found["share"] = f"{weights[small[0]]} of {TOTAL} to {small[0]!r}; minimum_share is {least}"
    return found


def _rule(problem: Problem, key: RuleKey, weights: Weights) -> Iterator[str]:
    """Yields what is wrong with one rule by itself."""
    c = problem.constraints
    if any(w < 0 or w != int(w) for w in weights.values()) or sum(weights.values()) != TOTAL:
        yield f"weights {dict(weights)} must be whole, at least 0, and sum to {TOTAL}"
    unknown = sorted(weights.keys() - set(problem.clusters))
    if unknown:
        yield f"unknown clusters {unknown}; known: {', '.join(problem.clusters)}"
    if key in c.pinned:
        if dict(weights) != dict(of_pin(c.pinned[key])):
            yield f"weights {dict(weights)} differ from the pin {dict(of_pin(c.pinned[key]))}"
        return
    yield from (
        f"{cluster!r} is a denied destination"
        for cluster, weight in weights.items()
        if weight and (key.source_cluster, key.class_id, cluster) in c.denied
    )


def _complete(problem: Problem, rules: Rules) -> Iterator[str]:
    """Yields what is wrong with the rules in relation to the call graph.

    Rules may be missing, closed, lead to a wrong destination, or be too far from the rules in
    force.
    """
    layout, c = problem.layout, problem.constraints
    for (s, k), edges in routes(problem).items():
        for i, cluster in enumerate(layout.clusters):
            key = RuleKey(cluster, layout.services[s], layout.classes[k])
            usable = {layout.clusters[j] for j in np.flatnonzero(layout.usable[edges[0], i])}
            weights = rules.get(key)
            if key in c.pinned:
                continue
            if _whole(c.held.get(key, {}), usable):
                yield from (f"{_name(key)}: {finding}" for finding in _unmoved(problem, key, weights))
                continue
            if weights is None:
                if usable:
                    yield f"{_name(key)}: no rule, though {', '.join(sorted(usable))} can serve it"
                continue
            if not usable:
                why = "denials close this route" if layout.closed[edges, i].any() else "nothing can serve it"
                yield f"{_name(key)}: a rule, though {why}"
                continue
            astray = sorted(to for to, weight in weights.items() if weight and to not in usable)
            if astray:
                why = f"which cannot serve it or is being drained; allowed: {sorted(usable)}"
                yield f"{_name(key)}: leads to {astray}, {why}"
            yield from (
                f"{_name(key)}: {finding}" for finding in _fixed(c.held.get(key, {}), weights, usable)
            )
            yield from (f"{_name(key)}: {finding}" for finding in _moves(problem, key, weights, usable))


def _whole(held: Mapping[str, float], usable: set[str]) -> bool:
    """Returns whether all of a route's calls are held at their present destinations."""
    return sum(held.values()) > 1 - 1e-6 and {to for to, share in held.items() if share > 0} <= usable


def _unmoved(problem: Problem, key: RuleKey, weights: Weights | None) -> Iterator[str]:
    """Yields what is wrong with the rule of a route that is held as a whole."""
    c = problem.constraints
    before = {to: round(share * TOTAL) for to, share in c.held[key].items() if share > 0}
    if key in c.unruled:
        if weights is not None:
            yield f"weights {dict(weights)}; the route is held without a rule"
    elif weights is None or dict(weights) != before:
        yield f"weights {weights and dict(weights)}; the route is held at {before}"


def _fixed(held: Mapping[str, float], weights: Weights, usable: set[str]) -> Iterator[str]:
    """Yields the held destinations whose weight has changed.

    Checked only if other destinations are free to take what the held ones would lose.
    """
    if not usable - held.keys():
        return
    for to in sorted(held.keys() & usable):
        if weights.get(to, 0) != round(held[to] * TOTAL):
            yield f"{weights.get(to, 0)} of {TOTAL} to {to!r}, which is held at {round(held[to] * TOTAL)}"


def _moves(problem: Problem, key: RuleKey, weights: Weights, usable: set[str]) -> Iterator[str]:
    """Yields violations of local share and shift for one route that is not pinned."""
    c, local = problem.constraints, key.source_cluster
    least = round(c.min_local_share * TOTAL) if local in usable and local not in c.drained else 0
    step = step_home(problem, key, usable)
    if step is not None:
        if dict(weights) != dict(step):
            yield f"weights {dict(weights)}; minimum_local_share within maximum_shift leaves {dict(step)} only"
        return
    if weights.get(local, 0) < least and local not in c.held.get(key, {}):
        yield f"{weights.get(local, 0)} of {TOTAL} stay local; minimum_local_share is {least}"
    before = c.in_force.get(key)
    yield from _kept(problem, key, weights, usable, before)
    if before is None or c.max_shift >= 1 or any(share and to not in usable for to, share in before.items()):
        return  # requests leave a destination that may not, or cannot, serve them at once
    parts = {to: share * TOTAL for to, share in before.items()}
    moved = sum(max(0.0, weight - parts.get(to, 0.0)) for to, weight in weights.items())
    if moved > c.max_shift * TOTAL + 1:
        yield f"{moved:.0f} of {TOTAL} move at once; maximum_shift is {c.max_shift * TOTAL:.0f}"


def _kept(
    problem: Problem, key: RuleKey, weights: Weights, usable: set[str], before: Mapping[str, float] | None
) -> Iterator[str]:
    """Yields what is wrong where an autoscaler shall see the calls. `before`: shares in force."""
    c, local = problem.constraints, key.source_cluster
    share = c.kept_local.get((key.class_id, local), 0.0)
    if share <= 0 or local not in usable - c.drained or local in c.held.get(key, {}):
        return
    if before is not None and c.max_shift < 1:
        share = min(share, before.get(local, 0.0) + c.max_shift)
    least = round(share * (1 if share >= 1 else 1 - _KEPT_SLACK) * TOTAL) - 1
    if weights.get(local, 0) < least:
        yield f"{weights.get(local, 0)} of {TOTAL} stay local; {least} should, for the autoscaler there"


def _limits(
    problem: Problem,
    now: Evaluation,
    least_bad: Evaluation | None,
    slack: float,
    parts: tuple[float, Floats | float] = (0.0, 0.0),
) -> list[str]:
    layout, c, found = problem.layout, problem.constraints, []
    if c.egress_usd_per_hour is not None:
        # Thrifty rounding keeps integers within the budget too, unless floors need more.
        best = least_bad.egress_usd_per_hour + parts[0] if least_bad else 0.0
        if now.egress_usd_per_hour > max(c.egress_usd_per_hour, best) * (1 + slack) + 1e-9:
            found.append(
                f"egress of {now.egress_usd_per_hour:.4g} USD/h is above egress_budget_usd_per_hour "
                f"{c.egress_usd_per_hour:g}"
            )
    if c.utilisation_ceiling is not None:
        allowed = np.full(now.utilisation.shape, c.utilisation_ceiling)
        if least_bad is not None:
            allowed = np.maximum(allowed, least_bad.utilisation)
        found += [
            f"{layout.services[s]} in {layout.clusters[i]} at {now.utilisation[s, i]:.1%} of its capacity is "
            f"above utilisation_ceiling {c.utilisation_ceiling:.0%}"
            for s, i in zip(*np.nonzero(now.utilisation > allowed * (1 + slack) + parts[1]), strict=True)
        ]
    return found


def _name(key: RuleKey) -> str:
    return f"rule {key.source_cluster}/{key.source_service} -> {key.class_id}"
