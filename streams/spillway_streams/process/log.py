"""Logging: one JSON object per line on stderr."""

import json
import logging
import sys
from datetime import UTC, datetime


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up() -> None:
    """Sends all log records to stderr as JSON, and silences noisy libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # These libraries log every reconnect. Our own log says once when a server goes away or returns.
    for noisy in ("faust", "mode", "aiokafka", "clickhouse_driver", "aiohttp.access", "kafka"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
