"""`spillway certify`: the reference solver on a problem document, at the lowest priority.

The running optimizer starts it as a child for its audits (service/auditing.py).
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from spillway_runtime import command_line

from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.problem_json import from_document
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.process.children import end_first, limit_data
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.tails.tailed import Tailed

_STDIN = Path("-")
_LOWEST_PRIORITY = 19
_MOST_BYTES = 1 << 30  # of its own data


@click.command("certify", cls=command_line.Command)
@click.argument("file", type=command_line.PATH, default=_STDIN)
@click.option(
    "--relative-gap",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-3,
    show_default=True,
    help="The gap at which the proof ends.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="The time at which it ends with what is proven.",
)
def certify(file: Path, relative_gap: float, seconds: float) -> None:
    """Proves how far from the global optimum a routing can be, by OR-Tools.

    FILE is a problem as in contracts/golden/4_problem.json, and stdin by default. Its key `shares`
    may have a known routing, shares [edge][from][to] in the order of `edges` and `clusters`. The
    answer is never worse than a known routing that keeps the constraints. It is one JSON object on
    stdout.
    """
    os.nice(_LOWEST_PRIORITY)
    _limit_memory()
    problem, known = _read(file)
    began = time.monotonic()
    try:
        solution = _solve(problem, known, Stop(relative_gap, seconds=seconds))
    except MemoryError:
        raise InputError(f"{file}: needs more than {_MOST_BYTES >> 20} MiB") from None
    print(json.dumps(_document(solution, time.monotonic() - began)))


def _limit_memory() -> None:
    limit_data(_MOST_BYTES)
    end_first()


def _read(file: Path) -> tuple[Problem, Floats | None]:
    """Returns the problem, and shares [E, C, C] of a known routing. Raises InputError."""
    try:
        document = json.loads(sys.stdin.read() if file == _STDIN else file.read_text())
        problem = from_document(document)
    except (OSError, ValueError, RecursionError) as error:  # a ProblemError is a ValueError
        raise InputError(f"{file}: {error}") from error
    return problem, _known(file, document, problem)


def _known(file: Path, document: Mapping[str, Any], problem: Problem) -> Floats | None:
    if "shares" not in document:
        return None
    shape = problem.layout.usable.shape
    try:
        shares = np.array(document["shares"], dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: shares: {error}") from error
    if shares.shape != shape or not (np.isfinite(shares) & (shares >= 0)).all():
        raise InputError(f"{file}: shares: allowed: numbers of at least 0, of the shape {list(shape)}")
    return shares


def _solve(problem: Problem, known: Floats | None, stop: Stop) -> Solution:
    from spillway_optimizer.programmes.exact import Exact  # OR-Tools: not for those who only list commands

    hint = None if known is None else Hint(names_of(problem.layout), known)
    return Limited(Tailed(Exact(stop)), hint=hint).route(problem)


def _document(solution: Solution, seconds: float) -> dict[str, Any]:
    return {
        "usd_per_hour": solution.evaluation.usd_per_hour,
        "beyond_usd_per_hour": solution.beyond_usd_per_hour,
        "bound_usd_per_hour": solution.bound_usd_per_hour,
        "relative_gap": solution.relative_gap,
        "unproven": solution.unproven,
        "limits_loss": solution.limits_loss,
        "seconds": seconds,
        "notes": list(solution.notes),
        "shares": solution.shares.tolist(),
    }
