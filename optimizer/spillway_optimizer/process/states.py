"""States of servers and parts, each logged once per change, with counters and gauges."""

import logging
from collections import Counter

from spillway_runtime.status import describe


class States:
    """Logs the state of each subject when it changes, and holds counters and gauges."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._said: dict[str, str] = {}
        self._errors: dict[str, str] = {}  # the last error of each server that was away
        self.counters: Counter[str] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}  # current values, by name and labels

    def away(self, server: str, error: BaseException) -> None:
        """Logs that a server is away and why, once per kind of error.

        The error texts of the clients contain no password.
        """
        state = f"away ({type(error).__name__})"
        self.counters[f"{server}_away"] += 1
        self._errors[server] = describe(error)
        if self._said.get(server) != state:
            self._said[server] = state
            self._logger.warning("%s: away: %s", server, self._errors[server])

    def problems(self, missing: str | None) -> dict[str, str]:
        """Returns why a process is not ready, as its health reports it.

        `missing`: the server that it waits for, or "start"; None: it is ready.
        """
        return {missing: self._errors.get(missing, "no answer yet")} if missing else {}

    def say(self, subject: str, state: str, level: int = logging.INFO, count: str | None = None) -> None:
        """Logs the state of a subject if it differs from the last one logged.

        `count` names the counter to increase, whether or not the state is logged.
        """
        if count:
            self.counters[count] += 1
        if self._said.get(subject) != state:
            self._said[subject] = state
            self._logger.log(level, "%s: %s", subject, state)
