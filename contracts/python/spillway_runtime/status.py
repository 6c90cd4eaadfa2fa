"""The state of each server on which a program depends. A change of state is logged once."""

import logging
from collections.abc import Collection

_NOT_YET = "not reached yet"


class Status:
    """Which dependencies are in order, and why the others are not.

    The program is not ready while one of `required` has a problem. It works without the optional
    ones, which are known from the first call that names them.
    """

    def __init__(self, *required: str, log: logging.Logger | None = None) -> None:
        self._required: Collection[str] = frozenset(required)
        self._problems = dict.fromkeys(required, _NOT_YET)
        self._log = log or logging.getLogger("spillway.health")

    def ok(self, dependency: str) -> None:
        """Notes that a dependency is in order."""
        if self._problems.get(dependency, _NOT_YET):
            self._log.info("%s: in order", dependency)
        self._problems[dependency] = ""

    def failed(self, dependency: str, reason: BaseException | str) -> None:
        """Notes that a dependency fails. Only the first failure in a row is logged."""
        text = describe(reason)
        if self._problems.get(dependency, _NOT_YET) in ("", _NOT_YET):
            self._log.warning("%s: %s", dependency, text)
        self._problems[dependency] = text

    def problems(self) -> dict[str, str]:
        """Returns the reason of every required dependency that is not in order."""
        return {name: why for name, why in self._failing().items() if name in self._required}

    def degraded(self) -> dict[str, str]:
        """Returns the reason of every optional dependency that is not in order."""
        return {name: why for name, why in self._failing().items() if name not in self._required}

    def up(self) -> dict[str, bool]:
        """Returns for each dependency whether it is in order."""
        return {name: not problem for name, problem in self._problems.copy().items()}

    def _failing(self) -> dict[str, str]:
        return {name: problem for name, problem in self._problems.copy().items() if problem}


def describe(error: BaseException | str) -> str:
    """Returns a reason as one line: an error's type, and at most 300 characters of its text."""
    if isinstance(error, str):
        return error or "no reason given"
    return f"{type(error).__name__}: {error}"[:300].replace("\n", " ").removesuffix(": ")
