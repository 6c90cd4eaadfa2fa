"""ClickHouse client: reads the model's rows and writes solves and PAPA steps.

Calls block, so callers run them in a thread.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from clickhouse_driver import Client, errors

from spillway_optimizer.inputs.telemetry import CapacityRow, CurveRow, NetworkRow, RatioRow, read_rows

# Short, so that a server that does not answer never delays a stop.
_CONNECT_S, _ANSWER_S = 2, 3
# Rows up to this far ahead of our clock do not count as being in the future.
_SKEW_S = 60.0
_MOST_WAITING = 5000
# Codes of errors after which the server may accept the same row later, or from another user.
# Causes: too busy, out of memory, too many parts, disk full, read only, without its keeper,
# cancelled, database not created yet, and all errors of users and passwords.
_LATER = {
    159,
    160,
    164,
    192,
    193,
    194,
    202,
    209,
    210,
    225,
    236,
    241,
    242,
    243,
    252,
    285,
    286,
    319,
    394,
    497,
    516,
    745,
}
_LATER |= {errors.ErrorCodes.UNKNOWN_DATABASE, errors.ErrorCodes.KEEPER_EXCEPTION}
_UNFIT = (errors.TypeMismatchError, errors.TooLargeStringSize, errors.CannotParseUuidError)


@dataclass(frozen=True)
class ModelRows:
    """The model's rows, and descriptions of rows that could not be read."""

    curves: tuple[CurveRow, ...]
    capacities: tuple[CapacityRow, ...]
    call_ratios: tuple[RatioRow, ...]
    malformed: tuple[str, ...]
    network: tuple[NetworkRow, ...] = ()


class History:
    """A connection to ClickHouse with a bounded queue of rows to write.

    Rows that cannot be written now wait, oldest first. `lost` counts rows that were dropped from a
    full queue, and rows that the server will never accept.
    """

    def __init__(self, url: str):
        self._client = client(url, _CONNECT_S, _ANSWER_S)
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        # One connection can run one query at a time.
        self._lock = threading.Lock()
        self.lost = 0

    def model(self) -> ModelRows:
        """Reads the model's rows. Raises clickhouse_driver.errors.Error or OSError."""
        with self._lock:
            return model_rows(self._client, time.time() + _SKEW_S)

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Queues one row. `flush` writes it."""
        self._waiting.append((table, row))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1

    def flush(self) -> list[str]:
        """Writes queued rows. Returns the server's errors for rows that it will never accept.

        Such rows are dropped, because they must not block those behind them. Raises as `model`
        does. Rows that were not written stay in the queue.
        """
        refused = []
        with self._lock:
            while self._waiting:
                table, row = self._waiting[0]
                try:
                    self._client.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES", [row])
                except errors.Error as error:
                    if not _never(error):
                        raise
                    self.lost += 1
                    refused.append(f"{table}: {str(error).splitlines()[0]}")
                # The row may have been dropped meanwhile, from a full queue.
                if self._waiting and self._waiting[0][1] is row:
                    self._waiting.popleft()
        return refused

    def close(self) -> None:
        self._client.disconnect()


def _never(error: errors.Error) -> bool:
    """Returns whether the error is due to the row, not to the server or the connection."""
    return isinstance(error, _UNFIT) or (
        isinstance(error, errors.ServerException) and error.code not in _LATER
    )


def client(url: str, connect_s: int, answer_s: int) -> Client:
    """Returns a client that is not connected yet.

    The URL's own settings override these timeouts. Raises ValueError if it is no ClickHouse URL.
    """
    parts = urlsplit(url)
    given = {"connect_timeout": connect_s, "send_receive_timeout": answer_s, **dict(parse_qsl(parts.query))}
    return Client.from_url(urlunsplit(parts._replace(query=urlencode(given))))


def model_rows(connection: Client, end: float) -> ModelRows:
    """Reads the newest row of every curve, capacity, call ratio and network time.

    `end`: rows are read as of this time, Unix seconds. Raises clickhouse_driver.errors.Error or
    OSError.
    """
    at = {"end": end}
    curves, bad1 = read_rows(CurveRow, select(connection, "curves", at))
    capacities, bad2 = read_rows(CapacityRow, select(connection, "capacities", at))
    ratios, bad3 = read_rows(RatioRow, select(connection, "call_ratios", at))
    network, bad4 = read_rows(NetworkRow, select(connection, "network_times", at))
    return ModelRows(curves, capacities, ratios, bad1 + bad2 + bad3 + bad4, network)


def select(connection: Client, name: str, parameters: Mapping[str, float]) -> list[dict[str, Any]]:
    """Runs sql/NAME.sql and returns its rows by column.

    Times are Unix seconds, which mean the same in every server's time zone.
    """
    sql = resources.files("spillway_optimizer").joinpath("sql", f"{name}.sql").read_text()
    rows, columns = connection.execute(sql, dict(parameters), with_column_types=True)
    keys = [column for column, _ in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]
