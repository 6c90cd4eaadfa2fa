"""Computes routing rules: the problem, its objective, solvers, baseline policies and PAPA.

    OptimizerError
    ├── ProblemError      the problem is invalid: a cycle, a negative rate, an unplaced service
    └── SolveError        the LP solver gave no usable answer

A decision passes through these stages: telemetry + topology -> model.build -> Problem -> a Policy
-> Solution -> integer_weights.integer_rules -> assemble.from_rules -> verified Ruleset. Only
objective.evaluate prices a routing.
"""


class OptimizerError(Exception):
    """Base of every error that this package raises on purpose."""


class ProblemError(OptimizerError, ValueError):
    """The problem cannot be stated.

    The message names the key, the value and what is allowed. Several problems are joined by '; '.
    """


class SolveError(OptimizerError):
    """The LP solver ended without an optimum. The message carries its termination reason."""
