"""Scenario x policy: the costs of each policy's routing, and how they compare with ours."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy, Solution
from spillway_optimizer.scenarios.build import Scenario

_PERIODS = 40  # maximum: a policy that reacts to its own effects may oscillate for ever


def run(scenario: Scenario, policy: str) -> Solution:
    """Returns the solution of the scenario's last problem.

    One policy instance routes all problems in order, each until its routing settles.
    """
    instance = REGISTRY[policy]()
    return [_rest(instance, problem) for problem in scenario.problems()][-1]


def _rest(policy: Policy, problem: Problem) -> Solution:
    solution = policy.route(problem)
    for _ in range(_PERIODS):
        before, solution = solution, policy.route(problem)
        if np.allclose(before.shares, solution.shares, rtol=0.0, atol=1e-3):
            break
    return solution


def rows(scenarios: Iterable[Scenario]) -> list[dict[str, Any]]:
    """Returns one JSON object per scenario and policy.

    Ratios are relative to our policy. Above 1: ours is better. None: our value is 0.
    """
    found = []
    for scenario in scenarios:
        solutions = {name: run(scenario, name) for name in REGISTRY}
        ours = solutions[SPILLWAY].evaluation
        for name, solution in solutions.items():
            costs = solution.evaluation
            found.append(
                {
                    "scenario": scenario.name,
                    "source": scenario.source,
                    "policy": name,
                    "mean_ms": costs.mean_latency_ms,
                    "egress_usd_per_hour": costs.egress_usd_per_hour,
                    "objective_usd_per_hour": costs.usd_per_hour,
                    "ratio_mean_ms": _ratio(costs.mean_latency_ms, ours.mean_latency_ms),
                    "ratio_egress": _ratio(costs.egress_usd_per_hour, ours.egress_usd_per_hour),
                    "ratio_objective": _ratio(costs.usd_per_hour, ours.usd_per_hour),
                    "notes": list(solution.notes),
                }
            )
    return found


def _ratio(theirs: float, ours: float) -> float | None:
    return theirs / ours if ours > 0 else None


def as_text(scenarios: Iterable[Scenario], table: list[dict[str, Any]]) -> str:
    """Returns a table with three ratios per row: mean latency, egress, objective."""
    lines = [
        f"{'policy':<20}{'mean ms':>12}{'egress $/h':>14}{'objective $/h':>15}{'x ms':>9}{'x egress':>10}{'x $':>9}"
    ]
    for scenario in scenarios:
        lines.append(f"\n{scenario.name}: {scenario.summary} ({scenario.source})")
        for row in table:
            if row["scenario"] == scenario.name:
                ratios = (_short(row[key]) for key in ("ratio_mean_ms", "ratio_egress", "ratio_objective"))
                x_ms, x_egress, x_usd = ratios
                lines.append(
                    f"{row['policy']:<20}{row['mean_ms']:>12.2f}{row['egress_usd_per_hour']:>14.4f}"
                    f"{row['objective_usd_per_hour']:>15.4f}{x_ms:>9}{x_egress:>10}{x_usd:>9}"
                )
    return "\n".join(lines)


def _short(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
