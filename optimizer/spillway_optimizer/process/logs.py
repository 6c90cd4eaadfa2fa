"""JSON logs on stderr, one object per line, and states that are logged once per change."""

import json
import logging
import sys
import time
from collections import Counter


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start() -> None:
    """Sends all records of level INFO and above to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # The NATS client logs every attempt to reconnect. `States` logs the changes of state instead.
    logging.getLogger("nats").setLevel(logging.CRITICAL)


class States:
    """Logs the state of each subject when it changes, and holds counters and gauges."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._said: dict[str, str] = {}
        self.counters: Counter[str] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}  # current values, by name and labels

    def away(self, server: str, error: BaseException) -> None:
        """Logs that a server is away and why, once per kind of error.

        The error texts of the clients contain no password.
        """
        state = f"away ({type(error).__name__})"
        self.counters[f"{server}_away"] += 1
        if self._said.get(server) != state:
            self._said[server] = state
            self._logger.warning("%s: %s: %s", server, state, str(error)[:300])

    def say(self, subject: str, state: str, level: int = logging.INFO, count: str | None = None) -> None:
        """Logs the state of a subject if it differs from the last one logged.

        `count` names the counter to increase, whether or not the state is logged.
        """
        if count:
            self.counters[count] += 1
        if self._said.get(subject) != state:
            self._said[subject] = state
            self._logger.log(level, "%s: %s", subject, state)
