"""Explains why a rule splits calls as it does: one sentence from flows and marginal costs."""

from collections.abc import Mapping

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import hop_ms
from spillway_optimizer.problem.problem import Problem

_SHOWN = 3  # destinations whose marginal cost is shown


def reason(
    problem: Problem, e: int, i: int, calls: Floats, weights: Mapping[str, int], marginal: Floats
) -> str:
    """Returns the reason for the split of edge `e` from cluster `i`.

    `calls`: calls per second by destination, shape [to]. `marginal`: as objective.marginal_ms
    returns it, shape [K, C].
    """
    clusters = problem.layout.clusters
    source, total = clusters[i], float(calls.sum())
    away = sorted((c for c in weights if c != source), key=lambda c: -weights[c])
    if total <= 0:
        text = f"{source} makes no such calls now; a first one goes to {listed(sorted(weights))}"
    elif not away:
        text = f"{source} serves all of its {_rps(total)} req/s"
    elif not problem.layout.usable[e, i, i]:
        text = f"{source} cannot serve its {_rps(total)} req/s, {listed(away)} can"
    else:
        parts = [f"{_rps(float(calls[clusters.index(c)]))} to {c}" for c in away]
        text = f"{source} serves {_rps(float(calls[i]))} of its {_rps(total)} req/s and sends {listed(parts)}"
    if problem.unmodelled:
        return f"{text}: by what its callers see{_seen(problem, e, i)}"
    return f"{text}: one more costs {_costs(problem, e, i, weights, marginal)}{_valued(problem, e)}"


def _seen(problem: Problem, e: int, i: int) -> str:
    """Returns the averages of measured destinations, as ": p99 12 ms and 100 % success in ..."."""
    layout = problem.layout
    k = int(layout.edge_target[e])
    caller = layout.services[layout.class_service[layout.edge_source[e]]]
    route = problem.callers.get((layout.clusters[i], caller, layout.classes[k]))
    parts = [
        f"p99 {1000 * signals.p99_s.now:.0f} ms and {signals.success_rate.now:.1%} success in {cluster}"
        for cluster, signals in (route.destinations.items() if route else ())
    ]
    return f": {'; '.join(parts[:_SHOWN])}" if parts else ""


def _valued(problem: Problem, e: int) -> str:
    """Returns what a millisecond of these calls counts; empty if it counts as one."""
    value = float(problem.layout.value[problem.layout.edge_target[e]])
    return "" if value == 1.0 else f"; each ms that users wait counts as {value:.3g} ms"


def _costs(problem: Problem, e: int, i: int, weights: Mapping[str, int], marginal: Floats) -> str:
    layout = problem.layout
    hops = hop_ms(problem, np.array([e]), marginal)[0, i]
    # Order: the destinations in use, the own cluster, then the cheapest of the rest.
    ranked = sorted(
        np.flatnonzero(layout.usable[e, i]).tolist(),
        key=lambda j: (layout.clusters[j] not in weights, j != i, hops[j]),
    )
    return ", ".join(_cost(problem, e, i, j, float(hops[j])) for j in ranked[:_SHOWN])


def _cost(problem: Problem, e: int, i: int, j: int, total: float) -> str:
    layout = problem.layout
    network = float(layout.hop_worth[e] * layout.rtt[i, j])
    egress = float(layout.egress[e, i, j]) / problem.usd_per_ms
    failures = float(layout.failure_worth[layout.edge_target[e], j])
    away = ((network, "network"), (egress, "worth of egress")) if i != j else ()
    of_which = [f"{ms:.1f} ms {what}" for ms, what in (*away, (failures, "for failures")) if ms >= 0.05]
    within = f" including {listed(of_which)}" if of_which else ""
    return f"{total:.1f} ms in {layout.clusters[j]}{within}"


def _rps(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def listed(words: list[str]) -> str:
    """Joins words as in "a, b and c". Returns "nothing" for an empty list."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "nothing"
