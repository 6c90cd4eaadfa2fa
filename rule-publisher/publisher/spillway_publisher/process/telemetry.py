"""The process's own telemetry: counters, and the state of each server."""

import logging
from collections import Counter

from spillway_runtime.health import Report
from spillway_runtime.logs import fields
from spillway_runtime.status import Status

log = logging.getLogger("spillway.publisher")
NATS, REDIS, CLICKHOUSE, CHECKPOINTS = "nats", "redis", "clickhouse", "checkpoints"


class Telemetry:
    """Counters and the state of each server. Only the health endpoint and /metrics read them.

    The publisher is ready when it can publish, for which NATS must answer. It publishes without
    Redis, ClickHouse and the bucket of checkpoints.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.servers = Status(NATS, optional=(REDIS, CLICKHOUSE, CHECKPOINTS), log=log)
        # cluster -> relay -> Unix time of its last heartbeat
        self.relays: dict[str, dict[str, float]] = {}
        self._reasons: set[str] = set()

    def malformed(self, reason: str, subject: str, sequence: int, detail: str) -> None:
        """Counts a malformed message, and logs the first one of each reason."""
        self.counters[f"malformed.{reason}"] += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            log.warning(
                "malformed message terminated; further ones are counted only",
                extra=fields(reason=reason, subject=subject, sequence=sequence, detail=detail[:500]),
            )

    def report(self) -> Report:
        """Returns what the health endpoint answers."""
        return Report(self.servers.problems(), self.servers.degraded(), dict(self.counters))
