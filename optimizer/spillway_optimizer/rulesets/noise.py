"""Keeps rules in place that would move only because of noise. Pure.

The gain of moving a rule is computed to the second order. It is the number of calls that move,
times the difference between the costs of one more call at the destinations. These costs are the
mean of the values before and after the move. Network times in them are noisy where there are few
calls. Each has a standard error (network_times.py), and the gain is linear in them, so its own
standard error follows. Errors of different destinations are independent. Errors along one path add
up, because the path mostly uses the same pairs of clusters.

A rule moves if it gains more than STANDARD_ERRORS of these standard errors. If a move truly gains
nothing, noise alone exceeds that in 0.13 % of independent measurements (one-sided normal). If it is
truly worse, noise does so more rarely. Measurements that share no call are a minute apart (30 s
measured now, and as much remembered).
"""

from collections.abc import Iterator

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.marginal import marginal, way
from spillway_optimizer.problem.objective import Evaluation, evaluate_shares, propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, imposed, routes, to_shares
from spillway_optimizer.rulesets.verify import beyond_limits, verify

STANDARD_ERRORS = 3.0
_ROUNDING = 1.5 / TOTAL
_LEAST_TAIL = 1e-3  # of the objective: what less of a penalty for tails does not make up for noise


def without_noise(problem: Problem, before: Rules, candidate: Rules, least_bad: Evaluation | None) -> Rules:
    """Returns the candidate, but with the rules of `before` where the gain may be due to chance.

    A route without a rule in `before` is taken to send its calls to the nearest cluster, preferably
    its own. The whole candidate is returned if the combined rules break a constraint, or exceed
    tail targets by noticeably more. It is also returned if the candidate itself breaks a
    constraint: then it is refused, and none of its rules is hidden.
    """
    if not problem.layout.rtt_noise.any():
        return candidate
    start = {**candidate, **dict(_before(problem, before, candidate))}
    if start == candidate:
        return candidate
    chance = _chance(problem, start, candidate)
    kept = {key: start[key] if key in chance else weights for key, weights in candidate.items()}
    unsound = kept == candidate or verify(problem, kept, least_bad) or verify(problem, candidate, least_bad)
    return candidate if unsound or _worse_tails(problem, kept, candidate) else kept


def _worse_tails(problem: Problem, kept: Rules, candidate: Rules) -> bool:
    """Returns whether `kept` exceeds tail targets by noticeably more.

    Marginal costs do not contain them. A small difference may be due to the same noise.
    """
    if not problem.layout.targets:
        return False
    here, there = (evaluate_shares(problem, to_shares(problem, rules)) for rules in (kept, candidate))
    return here.tail_usd_per_hour - there.tail_usd_per_hour > _LEAST_TAIL * there.usd_per_hour


def _before(problem: Problem, before: Rules, candidate: Rules) -> Iterator[tuple[RuleKey, dict[str, int]]]:
    """Yields the rules of `before` that are still possible."""
    layout = problem.layout
    for (s, k), edges in routes(problem).items():
        e = edges[0]
        for i, source in enumerate(layout.clusters):
            key = RuleKey(source, layout.services[s], layout.classes[k])
            if (
                key not in candidate
                or not layout.usable[e, i].any()
                or imposed(problem, key, e, i) is not None
            ):
                continue
            weights = before.get(key) or {layout.clusters[_nearest(layout, e, i)]: TOTAL}
            row = np.array([weights.get(c, 0) / TOTAL for c in layout.clusters])
            known = weights.keys() <= set(layout.clusters)
            known &= not beyond_limits(problem.constraints, {key: weights}, {key: candidate[key]})
            most = np.where(layout.free[e, i], 1.0, layout.floor[e, i])
            if known and (row >= layout.floor[e, i] - _ROUNDING).all() and (row <= most + _ROUNDING).all():
                yield key, dict(weights)


def _nearest(layout: Layout, e: int, i: int) -> int:
    """Returns the index of the nearest cluster that can serve edge `e` from cluster `i`."""
    if layout.usable[e, i, i]:
        return i
    return int(np.argmin(np.where(layout.usable[e, i], layout.rtt[i], np.inf)))


def _chance(problem: Problem, before: Rules, after: Rules) -> set[RuleKey]:
    """Returns the rules whose gain is within its noise."""
    layout = problem.layout
    old, new = to_shares(problem, before), to_shares(problem, after)
    load = (propagate(layout, old)[1] + propagate(layout, new)[1]) / 2
    cost = (marginal(problem, old).total() + marginal(problem, new).total()) / 2
    noise = _noise(layout, (old + new) / 2)
    found = set()
    for (s, k), edges in routes(problem).items():
        moved = old[edges[0]] - new[edges[0]]  # [from, to]
        gain, error = np.zeros(len(layout.clusters)), np.zeros(len(layout.clusters))
        for e in edges:
            # A route without calls is treated as having one request per second.
            volume = layout.ratio[e] * np.where(
                load[layout.edge_source[e]] > 0, load[layout.edge_source[e]], 1.0
            )
            hop = way(problem, e).sum(axis=0) + cost[k][None, :]
            doubt = layout.hop_worth[e] * layout.rtt_noise + noise[k][None, :]
            gain += volume * (moved * hop).sum(axis=1)
            error += volume * np.sqrt(((moved * doubt) ** 2).sum(axis=1))
        for i in np.flatnonzero((error > 0) & (gain <= STANDARD_ERRORS * error)):
            found.add(RuleKey(layout.clusters[i], layout.services[s], layout.classes[k]))
    return found


def _noise(layout: Layout, shares: Floats) -> Floats:
    """Returns the standard error of network times, in ms at their value, shape [K, C].

    It covers the network times of all calls that a request of a class causes.
    """
    found = np.zeros((len(layout.classes), len(layout.clusters)))
    for k in reversed(range(len(layout.classes))):
        for e in layout.out_edges[k]:
            call_noise = layout.hop_worth[e] * layout.rtt_noise + found[layout.edge_target[e]][None, :]
            found[k] += layout.ratio[e] * (shares[e] * call_noise).sum(axis=1)
    return found
