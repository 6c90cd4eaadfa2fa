"""Builds the problem from a source's data, and the routing in force now. Pure."""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer import ProblemError
from spillway_optimizer.model.model import Model, build
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solving.today import today
from spillway_optimizer.sources import whatif
from spillway_optimizer.sources.errors import InputError, in_lines
from spillway_optimizer.sources.source_data import SourceData
from spillway_optimizer.sources.whatif import WhatIf

NOBODY = "locality failover, which proxies do without rules"
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Situation:
    """A problem and the data that it was built from. `data` already includes the what-ifs."""

    data: SourceData
    what_if: WhatIf
    model: Model
    problem: Problem

    @property
    def notes(self) -> tuple[str, ...]:
        return (*_refused(self.model), *self.data.notes, *self.model.notes, *_drained(self.problem))


@dataclass(frozen=True)
class Now:
    """The present routing: shares [E, from, to], and a description of where they come from."""

    shares: np.ndarray
    rules_from: str


def situation(data: SourceData, what_if: WhatIf) -> Situation:
    """Builds the situation. Raises InputError with every reason why there is no problem.

    Each reason has its key.
    """
    data = whatif.apply(data, what_if)
    model = build(
        data.telemetry,
        data.topology,
        data.now,
        demand_rps=data.demand_rps,
        guardrails=data.guardrails,
        in_force=data.in_force,
    )
    if model.problem is None:
        refused = [in_lines(data.source, refusal) for refusal in model.refusals]
        raise InputError("\n".join(refused + _left_out(model) + _hints(model)))
    try:
        return Situation(data, what_if, model, whatif.apply_to_problem(model.problem, what_if))
    except ProblemError as error:
        raise InputError(in_lines(data.source, error)) from error


def _refused(model: Model) -> tuple[str, ...]:
    """Describes applications that are not in the problem. Their rules are held."""
    return tuple(
        f"application {application.name!r} is left out, its rules are held: {refusal}"
        for application in model.applications
        for refusal in application.refusals
    )


def _left_out(model: Model) -> list[str]:
    """Returns notes about unused data, which is often the reason why the rest is insufficient."""
    notes = [note for note in model.notes if "left out" in note]
    rest = len(notes) - _MOST_SHOWN
    return notes[:_MOST_SHOWN] + ([f"left out: and {rest} more"] if rest > 0 else [])


def _hints(model: Model) -> list[str]:
    """Returns what the caller can do about a refusal."""
    if any(refusal.startswith("capacities: none") for refusal in model.refusals):
        return ["capacities: --capacity SERVICE=RPS says what a service can serve in each cluster"]
    return []


def now(of: Situation) -> Now:
    """Returns the present routing.

    A route fails over if it has no rule, or if its rule leads to a cluster that cannot serve it.
    """
    found = today(of.problem, of.data.in_force or {})
    if of.data.in_force is None:
        return Now(found.shares, NOBODY)
    lost = len(found.routes) - len(found.ruled)
    rest = f"; {lost} of {len(found.routes)} routes have no rule that fits and fail over" if lost else ""
    return Now(found.shares, f"rules {of.data.in_force_from}{rest}")


def _drained(problem: Problem) -> tuple[str, ...]:
    if not problem.constraints.drained >= set(problem.clusters):
        return ()
    return (
        "every cluster is drained: nothing is left to send calls to instead, so draining changes nothing",
    )
