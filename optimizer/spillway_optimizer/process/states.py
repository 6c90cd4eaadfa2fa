"""States of servers and parts, each logged once per change, with counters and gauges."""

import logging
from collections import Counter

from spillway_runtime.health import Report
from spillway_runtime.status import describe


class States:
    """The state of each subject, logged when it changes, with counters, gauges and readiness."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._logged: dict[str, str] = {}
        self._errors: dict[str, str] = {}  # the last error of each server that was away
        self._waits_for: str | None = "start"  # why the process is not ready; None once it is
        self.counters: Counter[str] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}  # current values, by name and labels

    def away(self, server: str, error: BaseException) -> None:
        """Logs that a server is away and why, once per kind of error.

        The error texts of the clients contain no password.
        """
        state = f"away ({type(error).__name__})"
        self.counters[f"{server}_away"] += 1
        self._errors[server] = describe(error)
        if self._logged.get(server) != state:
            self._logged[server] = state
            self._logger.warning("%s: away: %s", server, self._errors[server])

    def wait_for(self, server: str | None) -> None:
        """Sets the server for which the process waits. None: all servers have answered.

        A process that was ready once stays ready. A server that is away after that is logged only,
        because it is no reason for a restart.
        """
        if self._waits_for is not None:
            self._waits_for = server

    def report(self) -> Report:
        """Returns what the health endpoint answers."""
        waits_for = self._waits_for
        problems = {waits_for: self._errors.get(waits_for, "no answer yet")} if waits_for else {}
        return Report(problems, counters=dict(self.counters))

    def log(self, subject: str, state: str, level: int = logging.INFO, count: str | None = None) -> None:
        """Logs the state of a subject if it differs from the last one logged.

        `count` names the counter to increase, whether or not the state is logged.
        """
        if count:
            self.counters[count] += 1
        if self._logged.get(subject) != state:
            self._logged[subject] = state
            self._logger.log(level, "%s: %s", subject, state)
