"""Whether to propose new rules, renew those in force, or wait. Pure: hysteresis lives here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spillway.v1.ruleset_pb2 import Origin

from spillway_optimizer import ProblemError
from spillway_optimizer.hot import InForce
from spillway_optimizer.objective import evaluate_shares
from spillway_optimizer.problem import Problem
from spillway_optimizer.rules import TOTAL, Rules, max_difference, to_shares


class Action(Enum):
    PROPOSE = "proposed"
    RENEW = "renewed"
    WAIT = "unchanged"


@dataclass(frozen=True)
class Memory:
    """What this leader has proposed; empty at start."""

    policy: str | None = None
    own: Rules | None = None  # the last solution proposed
    intended: Rules | None = None  # what should be in force: own, or PAPA's change of it
    published_at: float = 0.0  # Unix seconds


@dataclass(frozen=True)
class Thresholds:
    min_weight_change: int = 200  # parts of 10 000
    min_gain: float = 0.001  # relative, by the objective; only for policies that minimise it
    renew_s: float = 15.0


@dataclass(frozen=True)
class Decision:
    action: Action
    rules: Rules
    reason: str
    memory: Memory  # to keep once the rules are published; with WAIT: to keep at once


def decide(
    memory: Memory,
    policy: str,
    candidate: Rules,
    minimises: bool,
    problem: Problem,
    in_force: InForce | None,
    now: float,
    thresholds: Thresholds,
) -> Decision:
    """`candidate` are the rules of the newest solution."""
    memory = _adopt(memory, policy, in_force)
    fresh = Memory(policy, candidate, candidate, now)
    if memory.policy != policy:
        return Decision(Action.PROPOSE, candidate, f"policy {policy!r} after {memory.policy!r}", fresh)
    if any(key not in memory.own for key in candidate):
        kept = _fitting(problem, {key: memory.intended.get(key, rule) for key, rule in candidate.items()})
        if kept is not None and _difference(memory.own, candidate) <= thresholds.min_weight_change:
            return Decision(Action.PROPOSE, kept, "new routes", replace(fresh, intended=kept))
        return Decision(Action.PROPOSE, candidate, "new routes", fresh)
    if _fitting(problem, memory.intended) is None:
        return Decision(Action.PROPOSE, candidate, "a destination in force can no longer serve", fresh)
    # Routes that the problem no longer has lapse.
    memory = replace(memory, intended={key: memory.intended[key] for key in candidate})
    difference = _difference(memory.own, candidate)
    if difference > thresholds.min_weight_change:
        gain = _gain(problem, memory.own, candidate) if minimises else 1.0
        if gain >= thresholds.min_gain:
            return Decision(Action.PROPOSE, candidate, f"a weight differs by {difference / TOTAL:.1%}", fresh)
    renewed = replace(memory, published_at=now)
    if not _holds(memory.intended, in_force):
        return Decision(Action.RENEW, memory.intended, "rules in force are not those proposed", renewed)
    if now - memory.published_at >= thresholds.renew_s:
        return Decision(Action.RENEW, memory.intended, "renewal", renewed)
    return Decision(Action.WAIT, memory.intended, "no weight differs enough", memory)


def _adopt(memory: Memory, policy: str, in_force: InForce | None) -> Memory:
    """Rules that PAPA put in force on top of ours are what should stay."""
    if in_force is None or memory.own is None or in_force.policy != policy:
        return memory
    if in_force.origin == Origin.ORIGIN_PAPA:
        return replace(memory, intended={**memory.intended, **in_force.rules})
    return memory


def _difference(own: Rules, candidate: Rules) -> int:
    """Over routes of both; routes that went away are no reason to act."""
    common = own.keys() & candidate.keys()
    return max_difference({k: own[k] for k in common}, {k: candidate[k] for k in common})


def _fitting(problem: Problem, rules: Mapping) -> Rules | None:
    try:
        to_shares(problem, rules)
    except ProblemError:
        return None
    return rules


def _gain(problem: Problem, own: Rules, candidate: Rules) -> float:
    try:
        before = evaluate_shares(problem, to_shares(problem, own)).usd_per_hour
    except ProblemError:
        return 1.0
    after = evaluate_shares(problem, to_shares(problem, candidate)).usd_per_hour
    return (before - after) / before if before > 0 else 0.0


def _holds(intended: Rules, in_force: InForce | None) -> bool:
    """Whether the clusters that publish any rules publish these; a publisher may move in steps."""
    if in_force is None or in_force.origin == Origin.ORIGIN_OPERATOR:
        return True  # nothing published yet, or not ours to change: the renewal will come
    return all(
        in_force.rules.get(key) == weights
        for key, weights in intended.items()
        if key.source_cluster in in_force.versions
    )
