"""The row in table solves of one application in one run of the optimizer. Pure."""

from dataclasses import dataclass
from typing import Any

from spillway_optimizer.clients.history import utc
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.rulesets.integer_weights import Loss

_NAN = float("nan")
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Solved:
    """A problem with its solution and the costs around it."""

    problem: Problem
    solution: Solution
    duration_ms: float
    least_bad: Evaluation | None = None  # evaluation of the best rules, before rounding
    loss: Loss | None = None
    # Evaluation of the routing in force at the same demand. None: it cannot be priced.
    now: Evaluation | None = None

    @property
    def quality(self) -> str:
        """The solution's gap and what extraction loses, as far as it was computed, for the log."""
        gap = f"gap {self.solution.relative_gap}"
        if self.loss is None:
            return gap
        return f"{gap}, lost {self.loss.merging:.2e} by merging and {self.loss.rounding:.2e} by rounding"


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
    }


def _rules(solved: Solved | None, e: Evaluation | None) -> dict[str, float]:
    if solved is None or e is None:
        keys = ("mean_latency_ms", "compute_ms", "network_ms", "compute_usd_per_hour", "network_usd_per_hour")
        rest = ("egress_usd_per_hour", "failure_usd_per_hour", "objective_usd_per_hour")
        unknown = dict.fromkeys((*keys, *rest), _NAN)
        return {"demand_rps": 0.0, **unknown}
    usd_per_ms_rps = solved.problem.usd_per_ms * _SECONDS_PER_HOUR
    return {
        "demand_rps": e.demand_rps,
        "mean_latency_ms": e.mean_latency_ms,
        "compute_ms": e.compute_ms,
        "network_ms": e.network_ms,
        "compute_usd_per_hour": e.compute_ms_rps * usd_per_ms_rps,
        "network_usd_per_hour": e.network_ms_rps * usd_per_ms_rps,
        "egress_usd_per_hour": e.egress_usd_per_hour,
        "failure_usd_per_hour": e.failure_ms_rps * usd_per_ms_rps,
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
        "binding": list(solution.binding) if solution else [],
        "duration_ms": solved.duration_ms if solved else _NAN,
    }


def _known(value: float | None) -> float:
    return _NAN if value is None else value
