"""Logs on stderr, one JSON object per line.

Keys: `at` (RFC 3339, UTC), `level`, `logger`, `message`, and `error` with the stack trace. A record
may have more keys: `log.info("…", extra=fields(cluster=name))`. Three of them mean the same in
all programs, the relay included: `cluster`, `ruleset_version` and `trace_id`.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def fields(**values: Any) -> dict[str, Any]:
    """Returns the `extra` argument that adds these keys to the line of a record."""
    return {"fields": values}


def start(libraries: Mapping[str, int] | None = None) -> None:
    """Sends all records of level INFO and above to stderr.

    `libraries`: minimum level by logger name, for libraries that log every attempt to reconnect.
    The program itself logs each change of state once.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for library, level in (libraries or {}).items():
        logging.getLogger(library).setLevel(level)
