"""One run of the optimizer as a row of table solves. Pure."""

from dataclasses import dataclass
from typing import Any

from spillway_optimizer.history import utc
from spillway_optimizer.objective import Evaluation
from spillway_optimizer.solution import Solution

_NAN = float("nan")


@dataclass(frozen=True)
class Solved:
    solution: Solution
    duration_ms: float


def solve_row(
    now: float,
    window: str,
    policy: str,
    outcome: str,
    reason: str,
    solved: Solved | None = None,
    evaluation: Evaluation | None = None,
    ruleset_id: str = "",
) -> dict[str, Any]:
    """`evaluation` is of the rules in question, not of the raw solution. What is not known is NaN."""
    gap = solved.solution.relative_gap if solved else None
    e = evaluation
    return {
        "at": utc(now),
        "input_window": window,
        "ruleset_id": ruleset_id,
        "policy": policy,
        "outcome": outcome,
        "reason": reason,
        "demand_rps": e.demand_rps if e else 0.0,
        "mean_latency_ms": e.mean_latency_ms if e else _NAN,
        "compute_ms": e.compute_ms if e else _NAN,
        "network_ms": e.network_ms if e else _NAN,
        "egress_usd_per_hour": e.egress_usd_per_hour if e else _NAN,
        "objective_usd_per_hour": e.usd_per_hour if e else _NAN,
        "relative_gap": _NAN if gap is None else gap,
        "duration_ms": solved.duration_ms if solved else _NAN,
    }
