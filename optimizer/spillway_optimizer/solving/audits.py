"""Which application is audited next, and what a proof says about a solve. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.penalties import relative
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.problem_json import to_document
from spillway_optimizer.problem.solution import Solution

CONFIRMED, BETTER, WRONG, UNFINISHED = "confirmed", "better", "wrong", "unfinished"
FAILED, TOO_LARGE = "failed", "too_large"
OUTCOMES = (CONFIRMED, BETTER, WRONG, UNFINISHED, FAILED, TOO_LARGE)
# Of a problem's arrays [E, C, C]. With 15 000 shares, a proof takes a third longer than its limit
# and 180 MB. With 60 000 it takes almost four times its limit (ADR 41).
MOST_SHARES = 20_000
_ROUNDING = 1e-6  # relative, of two solvers' arithmetic
# The keys of a proof that are numbers.
_NUMBERS = (
    "usd_per_hour",
    "beyond_usd_per_hour",
    "bound_usd_per_hour",
    "relative_gap",
    "unproven",
    "limits_loss",
    "seconds",
)


class AuditError(Exception):
    """An audit ended without a proof. The message says why."""


@dataclass(frozen=True)
class Proof:
    """What the reference solver found and proved, as `certify` prints it."""

    usd_per_hour: float
    beyond_usd_per_hour: float  # penalties of its routing for exceeding limits
    bound_usd_per_hour: float
    relative_gap: float
    unproven: float  # the relative gap without limits on destinations and tail targets
    limits_loss: float  # what these limits cost, relative to the objective without them
    seconds: float
    notes: tuple[str, ...]
    shares: Floats  # [E, from, to]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Reads the JSON object. Raises AuditError."""
        try:
            numbers = {name: float(document[name]) for name in _NUMBERS}
            notes = tuple(map(str, document["notes"]))
            shares = np.array(document["shares"], dtype=float)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise AuditError(f"not a proof: {type(error).__name__}: {error}") from error
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise AuditError(f"not a proof: {name}: {number}; allowed: finite numbers")
        if not (np.isfinite(shares) & (shares >= 0)).all():
            raise AuditError("not a proof: shares: allowed: finite numbers of at least 0")
        return cls(**numbers, notes=notes, shares=shares)


@dataclass(frozen=True)
class Verdict:
    """What a proof says about a solve.

    `difference`: by how much the best known routing costs less than the audited one, relative. Both
    costs have their penalties. The denominator has none, as in Solution.relative_gap.
    """

    outcome: str
    difference: float
    reason: str


def next_of(
    applications: Collection[str], started: Mapping[str, float], now: float, every_s: float
) -> str | None:
    """Returns the application to audit now, or None if the last audit is less than `every_s` ago.

    It is the one whose last audit is longest ago. `started`: when the last audit of each began, in
    seconds of the same clock as `now`.
    """
    if not applications or (started and now - max(started.values()) < every_s):
        return None
    return min(sorted(applications), key=lambda name: started.get(name, -np.inf))


def document(problem: Problem, solution: Solution) -> dict[str, Any]:
    """Returns the input of `certify`: the problem, with the audited routing as a start."""
    return {**to_document(problem), "shares": solution.shares.tolist()}


def verdict(audited: Solution, proof: Proof, least_gain: float) -> Verdict:
    """Compares a solve with its proof.

    `least_gain`: relative gain below which nothing is proposed.
    """
    best = min(proof.usd_per_hour + proof.beyond_usd_per_hour, audited.paid_usd_per_hour)
    objective, penalties = audited.evaluation.usd_per_hour, audited.beyond_usd_per_hour
    difference = relative(audited.paid_usd_per_hour - best, objective, penalties)
    bound, gap = audited.bound_usd_per_hour, audited.relative_gap
    stated = "no gap" if gap is None else f"a gap of {gap:.2%}"
    proven = f"proven within {proof.unproven:.2%} of the global optimum"
    if proof.relative_gap > proof.unproven + _ROUNDING:
        proven += f", apart from {', and from '.join(_apart(audited, proof))}"
    if bound is not None and best < bound - _ROUNDING * max(abs(bound), abs(best)):
        reason = f"a routing costs {difference:.2%} less, and the solve had stated {stated}"
        return Verdict(WRONG, difference, reason)
    if difference > max(least_gain, _ROUNDING):
        reason = f"a routing costs {difference:.2%} less, within the stated gap, and is {proven}"
        return Verdict(BETTER, difference, reason)
    if proof.unproven > max(least_gain, _ROUNDING):
        return Verdict(UNFINISHED, difference, f"the time was over; {proven}")
    return Verdict(CONFIRMED, difference, proven)


def _apart(audited: Solution, proof: Proof) -> list[str]:
    """Returns what a gap contains that the proof leaves out."""
    tails = audited.evaluation.tail_usd_per_hour > 0
    found = ["tail targets, which no bound contains"] if tails else []
    if proof.limits_loss > _ROUNDING or not tails:
        found.insert(0, f"which destinations were chosen: the limits on them cost {proof.limits_loss:.2%}")
    return found
