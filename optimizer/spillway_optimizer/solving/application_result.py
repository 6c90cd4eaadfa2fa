"""One application in one run of the optimizer, from its problem to the rules sent for it. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from spillway.v1.ruleset_pb2 import Destination, Rule
from spillway_contracts import traffic_class

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import Memory, Thresholds, due
from spillway_optimizer.model.model import ApplicationModel
from spillway_optimizer.policies import MINIMISING
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.objective import Evaluation, evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, Rules, stepped
from spillway_optimizer.rulesets.assemble import Priced, UnverifiedError, priced
from spillway_optimizer.rulesets.decide import LIMIT_SLACK, Action, Decision, decide, renewal
from spillway_optimizer.rulesets.integer_weights import integer_rules, loss
from spillway_optimizer.rulesets.verify import beyond_limits, exceeded, verify
from spillway_optimizer.solving.today import today
from spillway_optimizer.workers.solved import Solved

_MOST_REASON = 300


@dataclass(frozen=True)
class Circumstances:
    """The inputs for one application in this run, besides its problem.

    `rules`: the rules that relays route by.
    """

    policy: str
    now: float
    urgent: bool
    memory: Memory
    in_force: InForce | None
    rules: Mapping[RuleKey, Rule]
    thresholds: Thresholds
    # The reason for each rule that stays although telemetry shows no such calls now.
    idle: Mapping[RuleKey, str] = field(default_factory=dict)
    # Returns why rules must not be proposed at this demand (requests per second), or None.
    again: Callable[[Rules, float], str | None] = lambda rules, demand_rps: None
    ruleset_policy: str = ""  # that of the whole run; `policy` differs where it has fallen back
    jumped: bool = False  # the solve answers a jump of load

    @cached_property
    def weights(self) -> Rules:
        """The weights of the rules that relays route by."""
        return {
            key: {d.cluster: d.weight for d in rule.destinations if d.weight}
            for key, rule in self.rules.items()
        }


@dataclass(frozen=True)
class ApplicationResult:
    """The result for one application. `decision` is None if its rules are held unchanged."""

    name: str
    memory: Memory  # memory to keep if nothing is published
    published: Memory  # memory to keep once its rules are published
    solved: Solved | None = None
    decision: Decision | None = None
    part: Priced | None = None  # the decision's rules, priced
    held: tuple[Rule, ...] = ()  # rules that are sent unchanged
    wants: bool = False  # whether something must be sent for it now
    notes: tuple[str, ...] = ()
    refusal: str | None = None  # why the solve has no result, if it has none
    before: Rules = field(default_factory=dict)  # rules in force at the time of the decision
    policy: str = ""  # that it followed; empty: that of the run

    @property
    def proposes(self) -> bool:
        """Whether new rules, or a rollback, are proposed."""
        return self.proposal is not None

    @property
    def proposal(self) -> tuple[Decision, Priced] | None:
        """New rules or a rollback that are proposed: the decision, and its rules priced."""
        if self.decision is None or self.part is None:
            return None
        changes = self.decision.action in (Action.PROPOSE, Action.ROLL_BACK)
        return (self.decision, self.part) if changes else None

    def messages(self) -> tuple[str, ...]:
        """Returns the refusal, if any, and the notes, without duplicates."""
        refused = () if self.refusal is None else (f"refused: {self.refusal}",)
        return tuple(dict.fromkeys((*refused, *self.notes)))


def judged(model: ApplicationModel, solved: Solved | str, around: Circumstances) -> ApplicationResult:
    """Returns the result of an application that has a problem.

    `solved`: the solution, or the reason why none was found.
    """
    if isinstance(solved, str):
        return refused(model, solved, around, None)
    problem = solved.problem
    model = replace(model, problem=problem)
    best = project(problem, solved.solution)
    candidate = integer_rules(problem, best)
    if not candidate and problem.constraints.unruled:
        return refused(model, "every route is held, and none has a rule in force", around, solved)
    solved = replace(
        solved,
        least_bad=best.evaluation,
        loss=loss(problem, solved.solution, best, candidate),
        now=_now(problem, around),
    )
    decision = decide(
        around.memory,
        around.policy,
        candidate,
        around.policy in MINIMISING,
        problem,
        around.in_force,
        around.now,
        around.thresholds,
        urgent=around.urgent,
        least_bad=best.evaluation,
        jumped=around.jumped,
    )
    if decision.action is Action.PROPOSE:
        decision = _unless_tried(decision, solved, around)
    wrong = verify(problem, decision.rules, best.evaluation, decision.slack)
    if wrong:
        return refused(model, f"{UnverifiedError.__name__}: {'; '.join(wrong)}", around, solved)
    return _decided(model, problem, decision, around, solved)


def _now(problem: Problem, around: Circumstances) -> Evaluation | None:
    """Returns the cost of the routing in force, or None if it cannot be priced.

    In shadow mode no rules are in force, whatever was proposed before.
    """
    in_force = around.in_force.routing(around.now) if around.in_force else {}
    try:
        return evaluate_shares(problem, today(problem, in_force).shares)
    except ProblemError:
        return None


def _unless_tried(decision: Decision, solved: Solved, around: Circumstances) -> Decision:
    """Returns the decision, or a renewal if the new rules were worse when tried before.

    The previous rules are renewed only if they may stay in force.
    """
    problem = solved.problem
    why = around.again(decision.rules, float(problem.layout.demand.sum()))
    if why is None:
        return decision
    kept = renewal(around.memory, problem, around.in_force, solved.least_bad, around.now, around.thresholds)
    return decision if kept is None else replace(kept, reason=why)


def rolled_back(
    decided: Rules, solved: Solved, model: ApplicationModel, around: Circumstances, before: Rules, why: str
) -> ApplicationResult | str:
    """Returns the result with the rules of `before` a change, instead of those `decided`.

    If not all weights may move at once, it contains a step towards them. Returns the reason as text
    if these rules may not be in force any more.
    """
    problem = solved.problem
    most = problem.constraints.max_shift
    rules = {key: stepped(weights, before.get(key, weights), most) for key, weights in decided.items()}
    wrong = verify(problem, rules, solved.least_bad, LIMIT_SLACK)
    if around.policy in MINIMISING:
        # The rules to return to. A step on the way there may break a limit that both ends keep.
        target = {key: before.get(key, weights) for key, weights in decided.items()}
        wrong += beyond_limits(problem.constraints, target, decided)
    if wrong:
        return "; ".join(wrong)[:_MOST_REASON]
    memory = around.memory.proposing(around.policy, rules, rules, around.now, around.memory.proposed)
    return _decided(model, problem, Decision(Action.ROLL_BACK, rules, why, memory), around, solved)


def refused(
    model: ApplicationModel, why: str, around: Circumstances, solved: Solved | None
) -> ApplicationResult:
    """Returns the result of an application whose solve has no result.

    The rules proposed last are kept while they satisfy the problem's constraints. Otherwise, or
    without a problem, the rules in force are held unchanged.
    """
    if model.problem is not None:
        least_bad = solved.least_bad if solved else None
        decision = renewal(
            around.memory, model.problem, around.in_force, least_bad, around.now, around.thresholds
        )
        if decision is not None:
            return replace(_decided(model, model.problem, decision, around, solved), refusal=why)
    result = _held(model, dict.fromkeys(around.rules, why), around)
    return replace(result, solved=solved, notes=model.notes, refusal=why)


def resting(model: ApplicationModel, around: Circumstances) -> ApplicationResult:
    """Returns the result of an application that is known to have no requests now."""
    return _held(model, around.idle, around)


def _held(model: ApplicationModel, whys: Mapping[RuleKey, str], around: Circumstances) -> ApplicationResult:
    return ApplicationResult(
        model.name,
        around.memory,
        _published(around.memory, around),
        held=_as_they_are(around, whys),
        wants=bool(whys) and due(around.memory, around.thresholds, around.now),
        notes=(*model.notes, *_idle_notes(whys)),
    )


def _decided(
    model: ApplicationModel,
    problem: Problem,
    decision: Decision,
    around: Circumstances,
    solved: Solved | None,
) -> ApplicationResult:
    made_by = decision.memory.policy or around.policy
    part = priced(problem, decision.rules, "" if made_by == around.ruleset_policy else made_by)
    kept = (key for key in around.rules if key[1:] in model.kept)
    whys = {**dict.fromkeys(kept, "its calls cannot be modelled"), **around.idle}
    notes = [
        *model.notes,
        *_idle_notes(around.idle),
        *problem.layout.notes,
        *exceeded(problem, part.evaluation),
    ]
    return ApplicationResult(
        model.name,
        decision.memory if decision.action is Action.WAIT else around.memory,
        _published(decision.memory, around),
        solved,
        decision,
        part,
        _as_they_are(around, whys),
        decision.action is not Action.WAIT,
        (*notes, *(solved.solution.notes if solved else ())),
        policy=around.policy,
    )


def _published(memory: Memory, around: Circumstances) -> Memory:
    base = around.in_force.base_version if around.in_force else memory.base
    return replace(memory, published_at=around.now, base=base)


def _idle_notes(whys: Mapping[RuleKey, str]) -> tuple[str, ...]:
    counts = Counter(whys.values())
    return tuple(f"held: {count} rules: {why}" for why, count in sorted(counts.items()))


def _as_they_are(around: Circumstances, whys: Mapping[RuleKey, str]) -> tuple[Rule, ...]:
    """Returns the rules of these routes unchanged, each with the reason why it is held."""
    found = []
    for key, why in whys.items():
        rule = Rule()
        rule.CopyFrom(around.rules[key])
        rule.reason = f"held: {why}"[:_MOST_REASON]
        found.append(rule)
    return tuple(found)


def plain(rules: Rules) -> Mapping[RuleKey, Rule]:
    """Returns rules of which only the weights are known."""
    return {
        key: Rule(
            source_cluster=key.source_cluster,
            source_service=key.source_service,
            traffic_class=traffic_class.parse(key.class_id),
            destinations=[Destination(cluster=c, weight=w) for c, w in sorted(weights.items())],
        )
        for key, weights in rules.items()
    }


def sent(results: Sequence[ApplicationResult]) -> tuple[list[Priced], list[Rule]]:
    """Returns the two parts of a ruleset: decided rules, and held rules."""
    parts = [result.part for result in results if result.part is not None]
    return parts, [rule for result in results for rule in result.held]
