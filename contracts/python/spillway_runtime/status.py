"""The state of each server on which a program depends. A change of state is logged once."""

import logging
from collections.abc import Collection

_NOT_YET = "not reached yet"


class Status:
    """Which dependencies are in order, and why the others are not.

    The program is not ready while one of `required` has a problem, also before its first answer. It
    works without the `optional` ones, which are not reported before they are first used. A name
    that is in neither raises KeyError.
    """

    def __init__(
        self, *required: str, optional: Collection[str] = (), log: logging.Logger | None = None
    ) -> None:
        self._optional = frozenset(optional)
        self._problems = dict.fromkeys((*required, *optional), _NOT_YET)
        self._log = log or logging.getLogger("spillway.health")

    def ok(self, dependency: str) -> None:
        """Notes that a dependency is in order."""
        if self._problems[dependency]:
            self._log.info("%s: in order", dependency)
        self._problems[dependency] = ""

    def failed(self, dependency: str, reason: BaseException | str) -> None:
        """Notes that a dependency fails. Only the first failure in a row is logged."""
        text = describe(reason)
        if self._problems[dependency] in ("", _NOT_YET):
            self._log.warning("%s: %s", dependency, text)
        self._problems[dependency] = text

    def problems(self) -> dict[str, str]:
        """Returns the reason of every required dependency that is not in order."""
        return {name: why for name, why in self._failing().items() if name not in self._optional}

    def degraded(self) -> dict[str, str]:
        """Returns the reason of every optional dependency that is not in order."""
        return {name: why for name, why in self._failing().items() if name in self._optional}

    def up(self) -> dict[str, bool]:
        """Returns for each dependency whether it is in order."""
        return {name: not problem for name, problem in self._known().items()}

    def _failing(self) -> dict[str, str]:
        return {name: problem for name, problem in self._known().items() if problem}

    def _known(self) -> dict[str, str]:
        states = self._problems.copy()  # another thread may ask
        return {n: why for n, why in states.items() if why != _NOT_YET or n not in self._optional}


def describe(error: BaseException | str) -> str:
    """Returns a reason as one line: an error's type, and at most 300 characters of its text."""
    if isinstance(error, str):
        return error or "no reason given"
    return f"{type(error).__name__}: {error}"[:300].replace("\n", " ").removesuffix(": ")
