"""Decides whether to propose new rules, renew those in force, or wait (hysteresis). Pure.

Three thresholds keep noise from moving traffic. The weights must differ, and the objective must
gain. A gain that is small, or that reverts the last change, must appear in two consecutive solves.

An urgent reason (a jump of load, placement, guardrails) counts as a sure gain. A reversal of the
last change must still persist for some time. Otherwise, a fluctuating input would move traffic each
time. A jump of load is more than noise, so it reverts the last change at once, if the last such
reversal is that long ago. Only rules that break a constraint are replaced without any waiting.
"""

from dataclasses import dataclass, replace
from enum import Enum

from spillway.v1.ruleset_pb2 import Origin

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import (
    Memory,
    Reversal,
    Thresholds,
    confirmed,
    difference,
    due,
    pending,
    takes_back,
)
from spillway_optimizer.problem.objective import Evaluation, evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, Rules, changed, to_shares
from spillway_optimizer.rulesets.noise import without_noise
from spillway_optimizer.rulesets.verify import ROUNDING_SLACK, beyond_limits, verify


class Action(Enum):
    """What is done with an application's rules in a run."""

    PROPOSE = "proposed"
    RENEW = "renewed"
    WAIT = "unchanged"
    ROLL_BACK = "rolled_back"


_NEVER = float("-inf")
# Relative. Demand drifts between renewals, so budgets and ceilings may be exceeded by this much
# before new rules are sent.
LIMIT_SLACK = 0.02


@dataclass(frozen=True)
class Decision:
    """What to do with the rules of one application."""

    action: Action
    rules: Rules
    reason: str
    memory: Memory  # to keep once the rules are published; for WAIT, at once
    slack: float = LIMIT_SLACK  # how far budget and ceiling may be exceeded, relative


def decide(
    memory: Memory,
    policy: str,
    candidate: Rules,
    minimises: bool,
    problem: Problem,
    in_force: InForce | None,
    now: float,
    thresholds: Thresholds,
    urgent: bool = False,
    least_bad: Evaluation | None = None,
    jumped: bool = False,
) -> Decision:
    """Returns what to do now. `candidate`: the newest rules. `least_bad`: as in `verify`.

    `minimises`: whether the policy minimises the objective. Only then does a gain count. `urgent`:
    the solve did not wait for its period. `jumped`: because the load has changed at once.
    """
    memory = _adopt(memory, policy, in_force, now)
    if minimises:
        routed = in_force.routing(now) if in_force else {}
        known = memory.proposed if memory.proposed is not None else routed
        candidate = without_noise(problem, known, candidate, least_bad)
    before = memory.proposed if memory.policy == policy else None
    fresh = memory.proposing(policy, candidate, candidate, now, before)

    def propose(why: str) -> Decision:
        return Decision(Action.PROPOSE, candidate, why, fresh, ROUNDING_SLACK)

    if memory.policy != policy:
        return propose(f"policy {policy!r} after {memory.policy!r}")
    proposed, intended = _proposed(memory)
    # A limit costs something, so no gain would ever put it in force.
    broken = beyond_limits(problem.constraints, intended, candidate)
    if minimises and broken and not _operators(in_force):
        return propose(f"rules in force break a limit: {broken[0]}")
    if any(key not in proposed for key in candidate):
        kept = _with_new(memory, candidate, problem, least_bad, thresholds, now)
        return propose("new routes") if kept is None else kept
    if why := _unusable(problem, intended, in_force, least_bad):
        return propose(why)
    # Drop rules of routes that the problem no longer has.
    memory = replace(memory, intended={key: intended[key] for key in candidate})
    moved = difference(proposed, candidate)
    gain = _paying_gain(problem, proposed, candidate, moved, minimises, thresholds)
    if gain is None:
        return _keep(replace(memory, pending=None), in_force, now, thresholds)
    sure = urgent or gain >= thresholds.sure_gain
    if confirmed(memory, candidate, moved, sure, thresholds, now, jumped):
        if jumped and takes_back(memory, candidate, moved):
            fresh = replace(fresh, reversal=Reversal(now, moved))
        return propose(f"a weight differs by {moved / TOTAL:.1%}")
    return _keep(pending(memory, candidate, moved, now), in_force, now, thresholds)


def _unusable(
    problem: Problem, intended: Rules, in_force: InForce | None, least_bad: Evaluation | None
) -> str:
    """Returns why the intended rules must be replaced at once. Empty if they may stay in force."""
    if not _fits(problem, intended):
        return "a destination in force can no longer serve"
    # Check all intended rules: one that the candidate no longer has may be denied by now.
    broken = [] if _operators(in_force) else verify(problem, intended, least_bad, LIMIT_SLACK)
    return f"rules in force break a constraint: {broken[0]}" if broken else ""


def _paying_gain(
    problem: Problem,
    proposed: Rules,
    candidate: Rules,
    moved: int,
    minimises: bool,
    thresholds: Thresholds,
) -> float | None:
    """Returns the relative gain of the candidate. None if the change is too small to pay.

    `moved`: the largest weight difference. The gain is 1 if the policy does not minimise.
    """
    if moved <= thresholds.min_weight_change:
        return None
    gain = _gain(problem, proposed, candidate) if minimises else 1.0
    return gain if gain >= thresholds.min_gain else None


def _keep(memory: Memory, in_force: InForce | None, now: float, thresholds: Thresholds) -> Decision:
    """Renews the intended rules if they are not in force or if a renewal is due. Else waits."""
    _, intended = _proposed(memory)
    if not _holds(intended, in_force):
        return _renewed(memory, intended, "rules in force are not those proposed", now)
    if due(memory, thresholds, now):
        return _renewed(memory, intended, "renewal", now)
    waits = memory.pending is not None
    why = "a change that pays waits to be seen again" if waits else "no weight differs enough"
    return Decision(Action.WAIT, intended, why, memory)


def renewal(
    memory: Memory,
    problem: Problem,
    in_force: InForce | None,
    least_bad: Evaluation | None,
    now: float,
    thresholds: Thresholds,
) -> Decision | None:
    """Decides what to do after a solve without a result: keep the rules proposed last.

    They may be of any policy. Returns None if there are no such rules, or if they no longer satisfy
    the problem's constraints.
    """
    if memory.policy is None or memory.intended is None:
        return None
    memory = _adopt(memory, memory.policy, in_force, now)
    _, intended = _proposed(memory)
    if verify(problem, intended, least_bad, LIMIT_SLACK):
        return None
    if not due(memory, thresholds, now):
        return Decision(Action.WAIT, intended, "a renewal is not due", memory)
    return _renewed(memory, intended, "renewal", now)


def _renewed(memory: Memory, intended: Rules, why: str, now: float) -> Decision:
    return Decision(Action.RENEW, intended, why, replace(memory, published_at=now))


def _proposed(memory: Memory) -> tuple[Rules, Rules]:
    """Returns the rules that a memory with a policy has proposed, and those it intends."""
    # A memory gets its policy together with both.
    assert memory.proposed is not None and memory.intended is not None
    return memory.proposed, memory.intended


def _with_new(
    memory: Memory,
    candidate: Rules,
    problem: Problem,
    least_bad: Evaluation | None,
    thresholds: Thresholds,
    now: float,
) -> Decision | None:
    """Adds new routes to the rules in force, instead of proposing the whole candidate.

    This is done if the candidate differs little, or if it would revert the last change, which the
    next solves must confirm. Returns None if neither holds, or if the combined rules break a
    constraint.
    """
    last, intended = _proposed(memory)
    kept = {key: intended.get(key, rule) for key, rule in candidate.items()}
    moved = difference(last, candidate)
    same = moved <= thresholds.min_weight_change
    if not (same or takes_back(memory, candidate, moved)) or verify(problem, kept, least_bad, LIMIT_SLACK):
        return None
    proposed = {key: rule if same else last.get(key, rule) for key, rule in candidate.items()}
    before = last if same else memory.before
    known = memory.proposing(memory.policy, proposed, kept, now, before)
    return Decision(Action.PROPOSE, kept, "new routes", known if same else pending(known, candidate, 0, now))


def _adopt(memory: Memory, policy: str, in_force: InForce | None, now: float) -> Memory:
    """Returns the memory updated from the rules in force.

    PAPA's changes to our rules become part of what should stay in force. A new leader takes over
    the rules of the previous one, including PAPA's changes, while relays route by them.
    """
    if in_force is None or in_force.policy != policy:
        return memory
    if memory.proposed is None:
        ours = in_force.origin in (Origin.ORIGIN_OPTIMIZER, Origin.ORIGIN_PAPA)
        alive = in_force.routing(now) == in_force.rules != {}
        return Memory(policy, in_force.rules, in_force.rules, _NEVER) if ours and alive else memory
    papas = in_force.changed_by(Origin.ORIGIN_PAPA, memory.base)
    _, intended = _proposed(memory)
    return replace(memory, intended={**intended, **papas})


def _operators(in_force: InForce | None) -> bool:
    """Returns whether an operator has put the rules in force."""
    return in_force is not None and in_force.origin == Origin.ORIGIN_OPERATOR


def _fits(problem: Problem, rules: Rules) -> bool:
    """Returns whether the rules fit the problem."""
    try:
        to_shares(problem, rules)
    except ProblemError:
        return False
    return True


def _gain(problem: Problem, proposed: Rules, candidate: Rules) -> float:
    """Returns the relative gain of the objective. 1 if `proposed` no longer fits the problem."""
    try:
        before = evaluate_shares(problem, to_shares(problem, proposed)).usd_per_hour
    except ProblemError:
        return 1.0
    after = evaluate_shares(problem, to_shares(problem, candidate)).usd_per_hour
    return (before - after) / before if before > 0 else 0.0


def _holds(intended: Rules, in_force: InForce | None) -> bool:
    """Returns whether the rules in force are the intended ones, apart from OTHERS_DELTA.

    Only clusters that publish any rules count. The tolerance exists because a publisher may move in
    steps.
    """
    if in_force is None or _operators(in_force):
        return True  # nothing published yet, or not ours to change: wait for the renewal
    published = {k: weights for k, weights in intended.items() if k.source_cluster in in_force.versions}
    return not changed({k: in_force.rules.get(k, {}) for k in published}, published)
