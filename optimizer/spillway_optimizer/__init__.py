"""Problem, objective, solvers, baselines and PAPA.

    OptimizerError
    ├── ProblemError      the problem cannot be stated: a cycle, a negative rate, a service placed nowhere
    └── SolveError        the LP solver gave no usable answer

The way of a decision: telemetry + topology -> model.build -> Problem -> a Policy -> Solution ->
extract.ruleset -> verified Ruleset. Everything is priced by objective.evaluate, and by nothing else.
"""


class OptimizerError(Exception):
    """Any error this package raises on purpose."""


class ProblemError(OptimizerError, ValueError):
    """Names the key, the value and what is allowed; several problems are joined by '; '."""


class SolveError(OptimizerError):
    """The LP solver ended without an optimum; the message carries its termination reason."""
