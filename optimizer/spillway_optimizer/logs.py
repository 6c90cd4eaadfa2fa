"""One-line JSON logs on stderr, and saying a state once per change of it."""

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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # Its reconnect loop logs every attempt; state changes are said by us.
    logging.getLogger("nats").setLevel(logging.CRITICAL)


class States:
    """Remembers the last thing said about each subject; counts everything."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._said: dict[str, str] = {}
        self.counters: Counter[str] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}  # how things are now, by name and labels

    def say(self, subject: str, state: str, level: int = logging.INFO, count: str | None = None) -> None:
        if count:
            self.counters[count] += 1
        if self._said.get(subject) != state:
            self._said[subject] = state
            self._logger.log(level, "%s: %s", subject, state)
