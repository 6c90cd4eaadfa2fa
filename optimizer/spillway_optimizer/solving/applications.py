"""The applications from run to run: what was proposed for each, and how that is judged."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from spillway_contracts.guardrails import Guardrails, LatencyValue

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.judging.judging import Watch, sample
from spillway_optimizer.judging.memories import Parting, rules_by_key
from spillway_optimizer.judging.memory import Memory, Thresholds
from spillway_optimizer.model.model import ApplicationModel, Model, frozen
from spillway_optimizer.policies import MINIMISING
from spillway_optimizer.problem.rules import Rules
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.assemble import Priced
from spillway_optimizer.rulesets.decide import Action, Decision
from spillway_optimizer.rulesets.idle import Idle, absent_of, decided_of
from spillway_optimizer.solving.application_result import (
    ApplicationResult,
    Circumstances,
    judged,
    plain,
    refused,
    resting,
    rolled_back,
)
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.fallback import Fallback
from spillway_optimizer.solving.outcomes import Run
from spillway_optimizer.workers.solved import Failed, Solved

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """What the rules of all applications are decided from in one run."""

    model: Model
    solved: Mapping[str, Solved | Failed]  # by application
    telemetry: Telemetry
    unknown: Unknown
    guardrails: Guardrails
    fallback: Fallback


class Applications:
    """Decides and judges the rules of every application.

    Its state: this leader's proposals, and what is observed of them, by application.
    """

    def __init__(self, settings: OptimizerTuning, states: States):
        self._settings, self._states = settings, states
        self._memories: Mapping[str, Memory] = {}
        self.watches: dict[str, Watch] = {}
        # The values that the costs which the watches compare count.
        self._values: Sequence[LatencyValue] = ()
        self._parting, self._idle = Parting({}), Idle()

    def revalue(self, values: Sequence[LatencyValue]) -> None:
        """Starts judging anew if `values` have changed: costs before have another unit."""
        if tuple(values) != tuple(self._values):
            self.watches, self._values = {}, tuple(values)

    def routed(self, run: Run) -> Rules:
        """Returns the rules that relays route by, or the last proposed ones if Redis has none."""
        if run.in_force is not None:
            return run.in_force.routing(run.occasion.at)
        return {k: rule for m in self._memories.values() for k, rule in (m.intended or {}).items()}

    def decide(self, run: Run, inputs: Inputs) -> list[ApplicationResult]:
        """Returns the result of every application, also of those that telemetry lacks now."""
        model, routed = inputs.model, self.routed(run)
        parting = Parting.of({a.name: a.services for a in model.applications}).after(self._parting, routed)
        self._parting = parting
        parts = parting.split(routed)
        decided = decided_of(model, parts)
        self._idle = self._idle.after(routed, decided, inputs.unknown, inputs.guardrails, run.occasion.at)
        held = rules_by_key(run.in_force, run.occasion.at) or plain(routed)
        idle = parting.split({key: why for key, why in self._idle.why.items() if key in held})
        if inputs.guardrails.freeze:
            # Every rule is sent as it is, also those of calls that telemetry does not show.
            model, decided = frozen(model), frozenset(routed)
            idle = parting.split(dict.fromkeys(held, inputs.guardrails.holding or ""))
        applications = (*model.applications, *absent_of(model, parts, idle, self._idle.unknown))
        lapsed = routed.keys() - decided - self._idle.why.keys()
        rules = parting.split({key: rule for key, rule in held.items() if key not in lapsed})
        known = parting.memories(self._memories, [application.name for application in applications])
        results = []
        for application in applications:
            name = application.name
            around = Circumstances(
                inputs.fallback.of(name) or run.occasion.policy,
                run.occasion.at,
                run.urgent,
                known[name],
                parting.in_force(run.in_force, name, parts),
                rules.get(name, {}),
                self._thresholds(application),
                idle.get(name, {}),
                ruleset_policy=run.occasion.policy,
                jumped=run.occasion.trigger == "load",
            )
            application = replace(application, notes=(*model.mesh_notes, *application.notes))
            results.append(self._one(run, application, around, inputs))
        self.watches = {result.name: self.watches[result.name] for result in results}
        return results

    def keep(self, run: Run, results: Sequence[ApplicationResult], published: bool, killed: bool) -> None:
        """Stores the memories for the next run."""
        kept = {
            result.name: result.published if published else result.memory
            for result in results
            if not (killed and result.wants)
        }
        for result in results:
            if published and (proposal := result.proposal):
                self._watch(run, result, *proposal)
        self._memories = {
            **{c.name: self._memories[c.name] for c in results if c.name in self._memories},
            **kept,
        }

    def _watch(self, run: Run, result: ApplicationResult, decision: Decision, part: Priced) -> None:
        watch, at = self.watches[result.name], run.occasion.at
        if decision.action is Action.ROLL_BACK:
            watch.rolled_back(at, decision.reason)
        elif run.ours:
            watch.changed(at, result.before, decision.rules, part.evaluation.demand_rps)

    def _one(
        self, run: Run, application: ApplicationModel, around: Circumstances, inputs: Inputs
    ) -> ApplicationResult:
        """Returns the result of one application, decided and judged."""
        name, settings = application.name, self._settings
        watch = self.watches.get(name)
        if watch is None or not run.ours:
            watch = self.watches[name] = Watch(settings.rollback_interval_s, settings.load_change)
        if inputs.guardrails.freeze:
            found = inputs.solved.get(name)
            return replace(resting(application, around), solved=found if isinstance(found, Solved) else None)
        around = replace(around, again=partial(_again, watch, run.occasion.at, around.weights))
        result = replace(self._result(application, inputs.solved.get(name), around), before=around.weights)
        return self._watched_result(result, application, around, watch, inputs)

    def _watched_result(
        self,
        result: ApplicationResult,
        application: ApplicationModel,
        around: Circumstances,
        watch: Watch,
        inputs: Inputs,
    ) -> ApplicationResult:
        """Returns the result after judging. If judging fails, it stays as it was decided."""
        try:
            return self._observed(result, application, around, watch, inputs)
        except Exception as error:
            _LOG.exception("judging failed")
            self._states.counters["internal_errors"] += 1
            why = f"not judged: internal error: {type(error).__name__}: {error}"
            return replace(result, notes=(*result.notes, why))

    def _observed(
        self,
        result: ApplicationResult,
        application: ApplicationModel,
        around: Circumstances,
        watch: Watch,
        inputs: Inputs,
    ) -> ApplicationResult:
        """Judges rules that are in force, and replaces the result by a rollback where needed.

        Observations are compared with the prediction and with those before the change.
        """
        solved, decision, part = result.solved, result.decision, result.part
        watch.scaled(application.pods)
        if solved is None or decision is None or part is None or result.proposes or not around.weights:
            return result
        if around.policy not in MINIMISING:
            return result  # what does not minimise the objective is not judged by it
        if any(around.weights.get(key) != weights for key, weights in decision.rules.items()):
            return result
        price = self._settings.failure_cost_ms
        seen = sample(inputs.telemetry, inputs.unknown, solved.problem, part.evaluation, around.now, price)
        if seen is not None:
            watch.observe(seen)
        restore = watch.to_restore(around.weights, around.now)
        if restore is None:
            return result
        back = rolled_back(decision.rules, solved, application, around, *restore)
        if isinstance(back, ApplicationResult):
            return back
        watch.not_possible(around.now, back)
        return replace(result, notes=(*result.notes, f"worse than before, and cannot be rolled back: {back}"))

    def _result(
        self, application: ApplicationModel, solved: Solved | Failed | None, around: Circumstances
    ) -> ApplicationResult:
        if solved is None and not application.refusals:
            return resting(application, around)
        if solved is None:
            return refused(application, "; ".join(application.refusals), around, None)
        try:
            return judged(application, solved, around)
        except OptimizerError as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            _LOG.exception("deciding failed")
            self._states.counters["internal_errors"] += 1
            why = f"internal error: {type(error).__name__}: {error}"
        return refused(replace(application, problem=None), why, around, None)

    def _thresholds(self, application: ApplicationModel) -> Thresholds:
        s = self._settings
        thresholds = Thresholds(s.min_weight_change, s.min_gain, s.renew_s)
        problem = application.problem
        return thresholds.in_steps(problem.constraints.max_shift) if problem else thresholds


def _again(watch: Watch, now: float, in_force: Rules, rules: Rules, demand_rps: float) -> str | None:
    return watch.again(rules, now, demand_rps, in_force)
