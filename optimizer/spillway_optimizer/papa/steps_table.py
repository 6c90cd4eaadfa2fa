"""The row in table papa_steps of one step of PAPA. Pure."""

from typing import Any

from spillway_optimizer.papa.checkpoint import Trial
from spillway_optimizer.process.times import utc


def step_row(
    at: float, trial: Trial, objective_after_ms: float, outcome: str, reason: str, ruleset_id: str
) -> dict[str, Any]:
    """Returns one row. `at`: Unix seconds. `objective_after_ms`: NaN if it was not measured."""
    return {
        "at": utc(at),
        "ruleset_id": ruleset_id,
        "source_cluster": trial.key.source_cluster,
        "class": trial.key.class_id,
        "weights_before": dict(trial.before),
        "weights_after": dict(trial.after),
        "objective_before": trial.objective_before_ms,
        "objective_after": objective_after_ms,
        "outcome": outcome,
        "reason": reason,
    }
