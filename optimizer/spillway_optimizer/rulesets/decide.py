"""Whether to propose new rules, renew those in force, or wait. Pure: hysteresis lives here.

Three thresholds keep noise from moving traffic: the weights must differ, the objective must gain, and a gain that
is small, or that takes back the last change, must be there at two solves in a row. What is urgent (a jump of
load, placement, guardrails) counts as a sure gain, but what takes the last change back must have lasted, or
something that comes and goes would move traffic each time. Only what breaks a constraint waits for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spillway.v1.ruleset_pb2 import Origin

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import (
    Memory,
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
from spillway_optimizer.rulesets.verify import ROUNDING_SLACK, verify


class Action(Enum):
    PROPOSE = "proposed"
    RENEW = "renewed"
    WAIT = "unchanged"
    ROLL_BACK = "rolled_back"


_NEVER = float("-inf")
# Relative: demand drifts between renewals; budgets and ceilings may be exceeded by this before new rules go out.
LIMIT_SLACK = 0.02


@dataclass(frozen=True)
class Decision:
    action: Action
    rules: Rules
    reason: str
    memory: Memory  # to keep once the rules are published; with WAIT: to keep at once
    slack: float = LIMIT_SLACK  # relative, by which budget and ceiling may be exceeded


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
) -> Decision:
    """`candidate` are the newest rules, `least_bad` what verify takes."""
    memory = _adopt(memory, policy, in_force, now)
    if minimises:
        routed = in_force.routing(now) if in_force else {}
        known = memory.own if memory.own is not None else routed
        candidate = without_noise(problem, known, candidate, least_bad)
    fresh = Memory(policy, candidate, candidate, now, before=memory.own if memory.policy == policy else None)

    def propose(why: str) -> Decision:
        return Decision(Action.PROPOSE, candidate, why, fresh, ROUNDING_SLACK)

    if memory.policy != policy:
        return propose(f"policy {policy!r} after {memory.policy!r}")
    if any(key not in memory.own for key in candidate):
        kept = _with_new(memory, candidate, problem, least_bad, thresholds, now)
        return propose("new routes") if kept is None else kept
    if _fitting(problem, memory.intended) is None:
        return propose("a destination in force can no longer serve")
    # Whole: a rule that the candidate no longer has may be one that is denied by now.
    broken = [] if _operators(in_force) else verify(problem, memory.intended, least_bad, LIMIT_SLACK)
    if broken:
        return propose(f"rules in force break a constraint: {broken[0]}")
    # Routes that the problem no longer has lapse.
    memory = replace(memory, intended={key: memory.intended[key] for key in candidate})
    moved = difference(memory.own, candidate)
    pays = moved > thresholds.min_weight_change
    if pays:
        gain = _gain(problem, memory.own, candidate) if minimises else 1.0
        pays = gain >= thresholds.min_gain
        sure = urgent or gain >= thresholds.sure_gain
        if pays and confirmed(memory, candidate, moved, sure, thresholds, now):
            return propose(f"a weight differs by {moved / TOTAL:.1%}")
    memory = pending(memory, candidate, moved, now) if pays else replace(memory, pending=None)
    if not _holds(memory.intended, in_force):
        return _renewed(memory, "rules in force are not those proposed", now)
    if due(memory, thresholds, now):
        return _renewed(memory, "renewal", now)
    why = "a change that pays waits to be seen again" if pays else "no weight differs enough"
    return Decision(Action.WAIT, memory.intended, why, memory)


def renewal(
    memory: Memory,
    problem: Problem,
    in_force: InForce | None,
    least_bad: Evaluation | None,
    now: float,
    thresholds: Thresholds,
) -> Decision | None:
    """What goes on when a solve came to nothing: the rules last proposed, of whatever policy, while they keep to
    the problem. None: nothing to go on with."""
    if memory.policy is None or memory.intended is None:
        return None
    memory = _adopt(memory, memory.policy, in_force, now)
    if verify(problem, memory.intended, least_bad, LIMIT_SLACK):
        return None
    if not due(memory, thresholds, now):
        return Decision(Action.WAIT, memory.intended, "a renewal is not due", memory)
    return _renewed(memory, "renewal", now)


def _renewed(memory: Memory, why: str, now: float) -> Decision:
    return Decision(Action.RENEW, memory.intended, why, replace(memory, published_at=now))


def _with_new(
    memory: Memory,
    candidate: Rules,
    problem: Problem,
    least_bad: Evaluation | None,
    thresholds: Thresholds,
    now: float,
) -> Decision | None:
    """New routes beside those in force, where these may stay: the candidate differs little, or it would take the
    last change back, which is for the next solves to confirm."""
    kept = {key: memory.intended.get(key, rule) for key, rule in candidate.items()}
    moved = difference(memory.own, candidate)
    same = moved <= thresholds.min_weight_change
    if not (same or takes_back(memory, candidate, moved)) or verify(problem, kept, least_bad, LIMIT_SLACK):
        return None
    own = {key: rule if same else memory.own.get(key, rule) for key, rule in candidate.items()}
    before = memory.own if same else memory.before
    known = Memory(memory.policy, own, kept, now, before)
    return Decision(Action.PROPOSE, kept, "new routes", known if same else pending(known, candidate, 0, now))


def _adopt(memory: Memory, policy: str, in_force: InForce | None, now: float) -> Memory:
    """Rules that PAPA put in force on top of ours are what should stay. A leader that takes over goes on from the
    rules of the one before, PAPA's changes among them, while relays route by them."""
    if in_force is None or in_force.policy != policy:
        return memory
    if memory.own is None:
        ours = in_force.origin in (Origin.ORIGIN_OPTIMIZER, Origin.ORIGIN_PAPA)
        alive = in_force.routing(now) == in_force.rules != {}
        return Memory(policy, in_force.rules, in_force.rules, _NEVER) if ours and alive else memory
    papas = in_force.changed_by(Origin.ORIGIN_PAPA, memory.base)
    return replace(memory, intended={**memory.intended, **papas})


def _operators(in_force: InForce | None) -> bool:
    return in_force is not None and in_force.origin == Origin.ORIGIN_OPERATOR


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
    """Whether the clusters that publish any rules publish these, but for OTHERS_DELTA; a publisher may move in steps."""
    if in_force is None or _operators(in_force):
        return True  # nothing published yet, or not ours to change: the renewal will come
    published = {k: weights for k, weights in intended.items() if k.source_cluster in in_force.versions}
    return not changed({k: in_force.rules.get(k, {}) for k in published}, published)
