"""Names the side constraints that keep a routing from a better objective, in words."""

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem

_AT = 1e-3  # relative: a value this close to a limit counts as at the limit
_SHOWN = 1e-3  # the least difference of two percentages with one decimal that always shows
_KEPT = "what stays for an autoscaler"
_AT_TARGET = 1e-2  # the same for tail targets, which a search by prices meets less closely


def binding(problem: Problem, flows: Floats, evaluation: Evaluation) -> tuple[str, ...]:
    """Returns the constraints that are binding at flows [E, from, to] (rps), in words."""
    return (
        *_rows(problem, flows),
        *_ceiling(problem, evaluation),
        *_budget(problem, evaluation),
        *_tails(problem, evaluation),
    )


def unmet(problem: Problem, evaluation: Evaluation) -> tuple[str, ...]:
    """Returns a sentence for each place where the routing exceeds ceiling, budget or a tail target.

    A solver exceeds the first two only where every routing must. It exceeds a tail target also
    where keeping it costs more than it is worth.
    """
    layout, c = problem.layout, problem.constraints
    found = []
    if c.utilisation_ceiling is not None:
        over = evaluation.utilisation > c.utilisation_ceiling * (1 + _AT)
        found += [
            f"the utilisation ceiling of {c.utilisation_ceiling:.0%} is exceeded: {layout.services[s]} in "
            f"{layout.clusters[i]} is at {evaluation.utilisation[s, i]:.0%}"
            for s, i in zip(*np.nonzero(over & layout.placed), strict=True)
        ]
    if c.egress_usd_per_hour is not None and evaluation.egress_usd_per_hour > c.egress_usd_per_hour * (
        1 + _AT
    ):
        found.append(
            f"the egress budget of {c.egress_usd_per_hour:g} $/h is exceeded: "
            f"{evaluation.egress_usd_per_hour:.4g} $/h"
        )
    found += [
        f"the p99 of {layout.classes[tail.k]} is estimated at {tail.p99_ms:.0f} ms for requests that enter in "
        f"{layout.clusters[tail.c]}, above its target of {tail.target_ms:g} ms"
        for tail in evaluation.tails
        if tail.exceeded_ms > _AT * tail.target_ms
    ]
    return tuple(found)


def unseen(problem: Problem, u: Floats) -> list[tuple[str, str]]:
    """Returns services, each with a sentence, for which queueing is extrapolated with caution.

    `u`: utilisation [S, C]. What is above the range by rounding alone has none.
    """
    layout, caution = problem.layout, problem.extrapolation_caution
    return [
        (
            layout.services[s],
            f"{layout.services[s]} in {layout.clusters[c]} is at {u[s, c]:.1%} of its capacity, and was seen up to "
            f"{layout.seen[s, c]:.1%}: queueing that is extrapolated counts {1 + caution:g} times",
        )
        for s, c in zip(*np.nonzero((u > layout.seen + _SHOWN) & (caution > 0)), strict=True)
    ]


def _rows(problem: Problem, flows: Floats) -> list[str]:
    """Counts the routes that are at a floor, by the constraint that set the floor."""
    layout, c = problem.layout, problem.constraints
    if not layout.floor.any():
        return []
    calls = flows.sum(axis=2)
    kept = (
        (layout.floor > 0) & (flows <= layout.floor * calls[:, :, None] * (1 + _AT)) & (calls > 0)[:, :, None]
    )
    counts = {"a pin": 0, "the minimum local share": 0, _KEPT: 0, "the maximum shift": 0}
    routes = set()
    for e, i, j in zip(*np.nonzero(kept), strict=True):
        source = layout.services[layout.class_service[layout.edge_source[e]]]
        route = (layout.clusters[i], source, layout.classes[layout.edge_target[e]])
        if route in c.pinned:
            what = "a pin"
        elif i == j and layout.floor[e, i, j] <= c.min_local_share * (1 + _AT):
            what = "the minimum local share"
        elif i == j and layout.floor[e, i, j] <= c.kept_local.get((route[2], route[0]), 0.0) * (1 + _AT):
            what = _KEPT
        else:
            what = "the maximum shift"
        counts[what] += (what, route) not in routes
        routes.add((what, route))
    return [f"{what} on {count} route{'s' * (count > 1)}" for what, count in counts.items() if count]


def _ceiling(problem: Problem, evaluation: Evaluation) -> list[str]:
    layout, ceiling = problem.layout, problem.constraints.utilisation_ceiling
    if ceiling is None:
        return []
    at = layout.placed & (evaluation.utilisation >= ceiling * (1 - _AT))
    return [
        f"the utilisation ceiling of {ceiling:.0%} at {layout.services[s]} in {layout.clusters[c]}"
        for s, c in zip(*np.nonzero(at), strict=True)
    ]


def _budget(problem: Problem, evaluation: Evaluation) -> list[str]:
    budget = problem.constraints.egress_usd_per_hour
    if not budget or evaluation.egress_usd_per_hour < budget * (1 - _AT):
        return []
    return [f"the egress budget of {budget:g} $/h"]


def _tails(problem: Problem, evaluation: Evaluation) -> list[str]:
    layout = problem.layout
    return [
        f"the p99 target of {tail.target_ms:g} ms of {layout.classes[tail.k]} in {layout.clusters[tail.c]}"
        for tail in evaluation.tails
        if tail.p99_ms >= tail.target_ms * (1 - _AT_TARGET)
    ]
