"""One attempt to solve an application's problem, in the leader or in a worker process."""

import logging
import time
from collections.abc import Callable

from spillway_optimizer import OptimizerError
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy, Solution
from spillway_optimizer.workers.solved import Failed, Solved

_LOG = logging.getLogger(__name__)
# Returns the router of an application, given its share of the time for solving.
Routers = Callable[[str, float], Policy]


def attempt(problem: Problem, router: Callable[[], Policy]) -> tuple[Solution | Failed, float]:
    """Returns the solution by the policy that `router` returns, and how long it took, in ms."""
    started = time.monotonic()
    outcome: Solution | Failed
    try:
        outcome = router().route(problem)
    except OptimizerError as error:
        outcome = Failed(f"{type(error).__name__}: {error}")
    except Exception as error:
        # A mistake of ours for one input must not end the loop or affect other applications.
        _LOG.exception("this solve failed")
        outcome = Failed.internally(f"{type(error).__name__}: {error}")
        outcome.out_of_memory = isinstance(error, MemoryError)
    return outcome, (time.monotonic() - started) * 1000


def concluded(problem: Problem, outcome: Solution | Failed, ms: float) -> Solved | Failed:
    """Returns the outcome of an attempt, and the problem in which some routes move in steps."""
    if isinstance(outcome, Failed):
        return outcome
    return Solved(in_steps(problem, outcome.destinations), outcome, ms)
