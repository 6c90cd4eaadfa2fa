"""Reads all inputs once. The optimizer and PAPA both use it."""

import asyncio
import dataclasses
import logging
import time

import redis.exceptions
from clickhouse_driver.errors import Error as ClickHouseError
from nats.errors import Error as NatsError
from redis.asyncio import Redis

from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History, ModelRows
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.states import States
from spillway_optimizer.solving import metrics

# Exceptions by which a client reports that its server is away.
REDIS_AWAY = (redis.exceptions.RedisError, OSError, TimeoutError)
# EOFError: the connection ended between two queries.
CLICKHOUSE_AWAY = (ClickHouseError, OSError, EOFError)
NATS_AWAY = (NatsError, OSError, TimeoutError)


class Reader:
    """Reads boards every time, and the model's rows at an interval.

    The rows are read again when they are `refresh_s` old. They are kept while ClickHouse is away,
    until they are too old for the model builder.
    """

    def __init__(
        self,
        redis_client: Redis,
        history: History,
        clusters: tuple[str, ...],
        states: States,
        refresh_s: float = 0.0,
        outcomes: bool = False,
    ):
        """`outcomes`: also reads what callers saw, which PAPA may not read."""
        self._redis, self._history, self._clusters, self._states = redis_client, history, clusters, states
        self._refresh_s, self._read_at, self._outcomes = refresh_s, 0.0, outcomes
        self._rows: ModelRows | None = None

    async def read(self, refresh_s: float | None = None) -> Telemetry | None:
        """Returns the telemetry. None while the model's rows were never read.

        `refresh_s`: the age at which the model's rows are read again, in place of the reader's own.
        Raises one of REDIS_AWAY.
        """
        boards = await hot.boards(self._redis, self._clusters)
        if self._outcomes:
            seen = await hot.outcomes(self._redis, self._clusters)
            boards = dataclasses.replace(
                boards,
                outcomes=seen.outcomes,
                outcomes_at=seen.at,
                in_flight=seen.in_flight,
                malformed=boards.malformed + seen.malformed,
            )
        self._states.log("redis", "reachable")
        metrics.note_input(self._states, boards)
        await self.refresh(self._refresh_s if refresh_s is None else refresh_s)
        if self._rows is None:
            return None
        malformed = boards.malformed + self._rows.malformed
        if malformed:
            self._states.counters["malformed"] += len(malformed)
            self._states.log("malformed input", "; ".join(malformed[:3]), logging.WARNING)
        return dataclasses.replace(
            boards,
            curves=self._rows.curves,
            capacities=self._rows.capacities,
            call_ratios=self._rows.call_ratios,
            malformed=malformed,
            network_rows=self._rows.network,
        )

    @property
    def ready(self) -> bool:
        """Whether the model's rows were ever read."""
        return self._rows is not None

    async def refresh(self, older_than_s: float) -> None:
        """Reads the model's rows again if they are at least this old."""
        if self._rows is not None and time.monotonic() - self._read_at < older_than_s:
            return
        try:
            self._rows = await asyncio.to_thread(self._history.model)
            self._read_at = time.monotonic()
            self._states.log("clickhouse", "reachable")
        except CLICKHOUSE_AWAY as error:
            self._away(error)

    def _away(self, error: BaseException) -> None:
        self._states.away("clickhouse", error)

    async def flush(self) -> None:
        """Writes queued rows of history.

        Rows that cannot be written now wait. Rows that can never be written are dropped and logged.
        """
        try:
            refused = await asyncio.to_thread(self._history.flush)
            if refused:
                self._states.log("history", f"rows refused, e.g. {refused[0]}", logging.WARNING)
        except CLICKHOUSE_AWAY as error:
            self._away(error)
        self._states.counters["history_rows_lost"] = self._history.lost
