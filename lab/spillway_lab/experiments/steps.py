"""How long a step of the load took to become weights at an Envoy, stage by stage. Pure.

All times are Unix seconds of one machine. A step has led to new weights when the share that the
Envoy sends to other clusters has moved half of the way: from where it was at the step to where it
is at the end of the phase. A first, small correction therefore does not count, and neither does how
exactly the last per cent is met.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway_lab.scenario.loads import Phase

# Each stage ends with an event. It begins with that of the stage before, the first with the step.
STAGES = {
    "board": "the demand board shows half of the step",
    "trigger": "the solve begins, with its inputs read",
    "solve": "the proposal is made",
    "publish": "the publisher has written it",
    "relay": "the caller's Envoy has the weights",
}
_MOVED = 0.05  # of all requests; a smaller change of the share is no answer to a step


@dataclass(frozen=True)
class Step:
    """A change of a cluster's load, which lasts until the next one."""

    at_s: float
    until_s: float
    before_rps: float
    after_rps: float


@dataclass(frozen=True)
class Shown:
    """A reading of the demand board: when it was read, and the cluster's requests per second."""

    at_s: float
    rps: float


@dataclass(frozen=True)
class Taken:
    """Routes that an Envoy took: when, of which ruleset, and the share sent to other clusters."""

    at_s: float
    version: int
    away: float


@dataclass(frozen=True)
class Origin:
    """Where a ruleset comes from: what triggered its solve, and when it was made and published."""

    trigger: str
    solve_s: float
    proposed_s: float
    published_s: float


@dataclass(frozen=True)
class Seen:
    """What was observed during a run. `origins` is by version, and `taken` and `shown` by time."""

    shown: Sequence[Shown]
    taken: Sequence[Taken]
    origins: Mapping[int, Origin]


@dataclass(frozen=True)
class Reaction:
    """What followed a step.

    `total_s` is None if the weights did not move, or moved too little. `stages_s` is by STAGES, and
    empty if the origin of the ruleset is not known.
    """

    step: Step
    total_s: float | None
    stages_s: Mapping[str, float]
    trigger: str = ""


def steps(began_s: float, plan: Sequence[Phase], cluster: str) -> list[Step]:
    """Returns the changes of a cluster's rate in a plan of constant phases that began at a time."""
    found, at = [], began_s
    for before, phase in zip(plan, plan[1:], strict=False):
        at += before.seconds
        rates = before.rps.get(cluster, 0.0), phase.rps.get(cluster, 0.0)
        if rates[0] != rates[1]:
            found.append(Step(at, at + phase.seconds, *rates))
    return found


def stepping(plan: Sequence[Phase]) -> list[str]:
    """Returns the clusters whose rate changes in a plan."""
    clusters = {cluster for phase in plan for cluster in phase.rps}
    return sorted(c for c in clusters if len({phase.rps.get(c, 0.0) for phase in plan}) > 1)


def reaction(step: Step, seen: Seen) -> Reaction:
    """Returns what followed a step, from what was observed."""
    decisive = _decisive(step, seen.taken)
    if decisive is None:
        return Reaction(step, None, {})
    total_s, origin = decisive.at_s - step.at_s, seen.origins.get(decisive.version)
    if origin is None or origin.solve_s < step.at_s:
        return Reaction(step, total_s, {})
    half = (step.before_rps + step.after_rps) / 2
    rises = step.after_rps > step.before_rps
    during = (shown for shown in seen.shown if shown.at_s >= step.at_s)
    shown_s = next((shown.at_s for shown in during if (shown.rps >= half) == rises), math.inf)
    ends = [shown_s, origin.solve_s, origin.proposed_s, origin.published_s, decisive.at_s]
    # A solve may begin before the board shows half of the step. Its stage then takes no time.
    ends = [min(ends[i:]) for i in range(len(ends))]
    begins = [step.at_s, *ends[:-1]]
    stages = {name: end - begin for name, begin, end in zip(STAGES, begins, ends, strict=True)}
    return Reaction(step, total_s, stages, origin.trigger)


def _decisive(step: Step, taken: Sequence[Taken]) -> Taken | None:
    """Returns the first routes after a step with at least half of the change; None without any."""
    before = [routes.away for routes in taken if routes.at_s <= step.at_s]
    during = [routes for routes in taken if step.at_s < routes.at_s <= step.until_s]
    if not before or not during:
        return None
    change = during[-1].away - before[-1]
    if abs(change) < _MOVED:
        return None
    return next(routes for routes in during if (routes.away - before[-1]) / change >= 0.5)


def percentile_s(seconds: Iterable[float | None], share: float) -> float | None:
    """Returns the value that at least this share of the values does not exceed.

    None is longer than every value, and the result if it is among those that count, or if there are
    no values.
    """
    ordered = sorted(math.inf if value is None else value for value in seconds)
    if not ordered:
        return None
    found = ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]
    return None if found == math.inf else round(found, 3)


def document(found: Sequence[Reaction]) -> dict:
    """Returns the JSON of the last line of the benchmark. What is not known is None."""
    totals = [reaction.total_s for reaction in found]
    explained = [reaction.stages_s for reaction in found if reaction.stages_s]
    return {
        "benchmark": "reaction",
        "steps": len(found),
        "unanswered": totals.count(None),
        "p50_s": percentile_s(totals, 0.5),
        "p95_s": percentile_s(totals, 0.95),
        "up_p50_s": percentile_s([r.total_s for r in found if _rises(r.step)], 0.5),
        "down_p50_s": percentile_s([r.total_s for r in found if not _rises(r.step)], 0.5),
        "stages": {
            name: {
                "p50_s": percentile_s([stages[name] for stages in explained], 0.5),
                "p95_s": percentile_s([stages[name] for stages in explained], 0.95),
            }
            for name in STAGES
        },
        "explained": len(explained),
        "triggers": dict(Counter(reaction.trigger for reaction in found if reaction.trigger)),
    }


def _rises(step: Step) -> bool:
    return step.after_rps > step.before_rps
