"""Records the outcome of a run for every application: row in table solves, log line, counters."""

import logging
from dataclasses import dataclass, replace

from spillway_contracts import traffic_class

from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.model.model import Window
from spillway_optimizer.policies import MINIMISING
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.decide import Action
from spillway_optimizer.solving.application_result import ApplicationResult
from spillway_optimizer.solving.mesh import Mesh
from spillway_optimizer.solving.solves_table import Occasion, solve_row

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """The values that all applications of a run share."""

    occasion: Occasion
    urgent: bool
    in_force: InForce | None
    window: Window
    classes: tuple[str, ...]

    @property
    def ours(self) -> bool:
        """Whether a change is this optimizer's own, so that it is judged.

        A change of the policy is the operator's choice. Only policies that minimise the objective
        are judged by it.
        """
        policy = self.occasion.policy
        return policy in MINIMISING and (self.in_force is None or self.in_force.policy == policy)


def known_classes(in_force: InForce | None) -> tuple[str, ...]:
    """Returns every class that the rulesets in force contain, sorted."""
    rulesets = in_force.rulesets.values() if in_force else ()
    return tuple(sorted({traffic_class.format_id(k) for r in rulesets for k in r.traffic_classes}))


class Outcomes:
    """Writes outcomes to history, log and counters."""

    def __init__(self, mesh: Mesh, states: States):
        self._mesh, self._states = mesh, states

    def log_model(self, result: ApplicationResult) -> None:
        """Logs the state of an application's model, once per change of it."""
        subject = f"model of {result.name}" if result.name else "model"
        if result.refusal is not None:
            self._states.log(subject, f"refused: {result.refusal}", logging.WARNING, "refused")
        else:
            self._states.log(subject, "sound")

    def refuse(self, run: Run, result: ApplicationResult, reason: str) -> None:
        """Records a run that ended with an error."""
        self._states.log("model", f"refused: {reason}", logging.WARNING, "refused")
        self.record(run, replace(result, part=None, notes=(), refusal=None), "refused", reason)

    def record(
        self, run: Run, result: ApplicationResult, outcome: str, reason: str, published: str = ""
    ) -> None:
        """Adds one row to table solves."""
        evaluation = result.part.evaluation if result.part else None
        row = solve_row(
            replace(run.occasion, policy=result.policy or run.occasion.policy),
            outcome,
            reason,
            result.messages(),
            result.solved,
            evaluation,
            published,
            result.name,
        )
        self._mesh.add("solves", row)

    def settle(self, run: Run, result: ApplicationResult, published: str, holding: str | None = None) -> None:
        """Records an application's outcome after its decision was carried out.

        `published`: the id of the ruleset, or '' if none was published. `holding`: why weights may
        not change now; None: they may.
        """
        proposal = result.proposal
        outcome, reason = Action.WAIT.value, result.decision.reason if result.decision else ""
        if published:
            outcome = proposal[0].action.value if proposal else Action.RENEW.value
            reason = reason if result.wants and result.decision else holding or "renewal"
            if not (result.part or result.held):
                refused = "refused", result.refusal or ""
                outcome, reason = refused if holding is None else (Action.WAIT.value, holding)
        elif result.refusal is not None:
            outcome, reason = "refused", result.refusal
        elif holding and (result.wants or result.decision is None):
            reason = f"{holding}; nothing is proposed"
        if outcome == "refused":
            # The rules of this result are not the ones that would hold now.
            result = replace(result, part=None, notes=(), refusal=None)
        self.record(run, result, outcome, reason, published if outcome != "refused" else "")
        if outcome != "refused":
            self._states.counters[outcome] += 1
        if proposal and published:
            decision, part = proposal
            self._log(run, result, decision.action, part.evaluation, reason, published)

    def _log(
        self, run: Run, result: ApplicationResult, action: Action, e: Evaluation, reason: str, published: str
    ) -> None:
        _LOG.info(
            "%s %s: application %s, policy %s, %s, predicted mean %.1f ms at %.0f req/s, %s",
            action.value,
            published,
            result.name,
            result.policy or run.occasion.policy,
            reason,
            e.mean_latency_ms,
            e.demand_rps,
            result.solved.quality if result.solved else "no solution",
        )
