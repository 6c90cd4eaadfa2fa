"""The row in table solves of one application in one run of the optimizer. Pure."""

from dataclasses import dataclass, replace
from typing import Any

from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.process.times import utc
from spillway_optimizer.solving.audits import Proof
from spillway_optimizer.workers.solved import Solved

_NAN = float("nan")


@dataclass(frozen=True)
class Occasion:
    """When and why a run took place, whatever its outcome."""

    at: float  # Unix seconds
    window: str
    policy: str
    trigger: str


def solve_row(
    occasion: Occasion,
    outcome: str,
    reason: str,
    notes: tuple[str, ...] = (),
    solved: Solved | None = None,
    evaluation: Evaluation | None = None,
    ruleset_id: str = "",
    application: str = "",
) -> dict[str, Any]:
    """Returns one row of table solves.

    `evaluation`: evaluates the rules in question, not the raw solution. It comes with `solved`.
    `application`: '' for rows about the whole mesh.
    """
    return {
        "at": utc(occasion.at),
        "input_window": occasion.window,
        "ruleset_id": ruleset_id,
        "application": application,
        "policy": occasion.policy,
        "trigger": occasion.trigger,
        "outcome": outcome,
        "reason": reason,
        **_rules(solved, evaluation),
        **_now(solved, evaluation),
        **_solution(solved),
        "notes": list(notes),
        **dict.fromkeys(("audited_usd_per_hour", "audited_gap", "audit_difference"), _NAN),
    }


def audit_row(
    occasion: Occasion, reason: str, application: str, audited: Solution, proof: Proof, difference: float
) -> dict[str, Any]:
    """Returns the row of an audit: the proof in place of the solution, and the solve it is about.

    `occasion`: of the audited solve. `difference`: as in Verdict.
    """
    row = solve_row(
        replace(occasion, trigger="audit"), "audited", reason, proof.notes, application=application
    )
    return {
        **row,
        "solution_usd_per_hour": proof.usd_per_hour,
        "bound_usd_per_hour": proof.bound_usd_per_hour,
        "relative_gap": proof.relative_gap,
        "duration_ms": proof.seconds * 1000,
        "audited_usd_per_hour": audited.paid_usd_per_hour,
        "audited_gap": _known(audited.relative_gap),
        "audit_difference": difference,
    }


def _rules(solved: Solved | None, e: Evaluation | None) -> dict[str, float]:
    if solved is None or e is None:
        keys = ("mean_latency_ms", "compute_ms", "network_ms", "compute_usd_per_hour", "network_usd_per_hour")
        rest = ("egress_usd_per_hour", "failure_usd_per_hour", "objective_usd_per_hour")
        unknown = dict.fromkeys((*keys, *rest), _NAN)
        return {"demand_rps": 0.0, **unknown}
    return {
        "demand_rps": e.demand_rps,
        "mean_latency_ms": e.mean_latency_ms,
        "compute_ms": e.compute_ms,
        "network_ms": e.network_ms,
        "compute_usd_per_hour": e.compute_usd_per_hour,
        "network_usd_per_hour": e.network_usd_per_hour,
        "egress_usd_per_hour": e.egress_usd_per_hour,
        "failure_usd_per_hour": e.failure_usd_per_hour,
        "objective_usd_per_hour": e.usd_per_hour,
    }


def _now(solved: Solved | None, of_rules: Evaluation | None) -> dict[str, float]:
    """Returns the costs of the routing in force.

    They are NaN without the costs of the rules in question, because there is nothing to compare.
    """
    now = solved.now if solved and of_rules else None
    return {
        "now_mean_latency_ms": now.mean_latency_ms if now else _NAN,
        "now_egress_usd_per_hour": now.egress_usd_per_hour if now else _NAN,
        "now_objective_usd_per_hour": now.usd_per_hour if now else _NAN,
    }


def _solution(solved: Solved | None) -> dict[str, Any]:
    solution, loss = (solved.solution, solved.loss) if solved else (None, None)
    return {
        "solution_usd_per_hour": solution.evaluation.usd_per_hour if solution else _NAN,
        "bound_usd_per_hour": _known(solution.bound_usd_per_hour if solution else None),
        "relative_gap": _known(solution.relative_gap if solution else None),
        "merging_loss": loss.merging if loss else _NAN,
        "rounding_loss": loss.rounding if loss else _NAN,
        "limits_loss": loss.limits if loss else _NAN,
        "binding": list(solution.binding) if solution else [],
        "duration_ms": solved.duration_ms if solved else _NAN,
    }


def _known(value: float | None) -> float:
    return _NAN if value is None else value
