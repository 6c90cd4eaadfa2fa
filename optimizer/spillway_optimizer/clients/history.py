"""ClickHouse: the model's rows in, solves and PAPA steps out. Blocking; callers run it in a thread."""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from clickhouse_driver import Client, errors

from spillway_optimizer.inputs.telemetry import CapacityRow, CurveRow, NetworkRow, RatioRow, read_rows

# Short, so that a stop is never held up by a server that does not answer.
_CONNECT_S, _ANSWER_S = 2, 3
# Rows of a clock so much ahead of ours are not of the future.
_SKEW_S = 60.0
_MOST_WAITING = 5000
# Answers of a server that would take the same row later, or from somebody else: too busy, out of memory, parts or
# disk, read only, without its keeper, cancelled, no such database yet, and all of users and passwords.
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
    curves: tuple[CurveRow, ...]
    capacities: tuple[CapacityRow, ...]
    call_ratios: tuple[RatioRow, ...]
    malformed: tuple[str, ...]
    network: tuple[NetworkRow, ...] = ()


class History:
    """Rows that cannot be written now wait, oldest first, up to a bound; `lost` counts what fell off, and rows that
    the server will never take."""

    def __init__(self, url: str):
        self._client = client(url, _CONNECT_S, _ANSWER_S)
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        # One connection, one query at a time.
        self._lock = threading.Lock()
        self.lost = 0

    def model(self) -> ModelRows:
        """Raises clickhouse_driver.errors.Error or OSError."""
        with self._lock:
            return model_rows(self._client, time.time() + _SKEW_S)

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Queues one row; `flush` writes it."""
        self._waiting.append((table, row))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1

    def flush(self) -> list[str]:
        """Writes what waits. Raises as `model` does; rows not written stay. What the server says against a row that
        it will never take is returned, and the row is lost: it must not keep those behind it waiting."""
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
                self._waiting.popleft()
        return refused

    def close(self) -> None:
        self._client.disconnect()


def _never(error: errors.Error) -> bool:
    """Whether it is the row, and not the server or the way to it."""
    return isinstance(error, _UNFIT) or (
        isinstance(error, errors.ServerException) and error.code not in _LATER
    )


def client(url: str, connect_s: int, answer_s: int) -> Client:
    """Not connected yet; the url's own settings go before these. Raises ValueError for what is no url of
    ClickHouse."""
    parts = urlsplit(url)
    given = {"connect_timeout": connect_s, "send_receive_timeout": answer_s, **dict(parse_qsl(parts.query))}
    return Client.from_url(urlunsplit(parts._replace(query=urlencode(given))))


def model_rows(connection: Client, end: float) -> ModelRows:
    """The newest of every curve, capacity, ratio and network time as of `end`, Unix seconds. Raises
    clickhouse_driver.errors.Error or OSError."""
    at = {"end": end}
    curves, bad1 = read_rows(CurveRow, select(connection, "curves", at))
    capacities, bad2 = read_rows(CapacityRow, select(connection, "capacities", at))
    ratios, bad3 = read_rows(RatioRow, select(connection, "call_ratios", at))
    network, bad4 = read_rows(NetworkRow, select(connection, "network_times", at))
    return ModelRows(curves, capacities, ratios, bad1 + bad2 + bad3 + bad4, network)


def select(connection: Client, name: str, parameters: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rows of sql/NAME.sql by column; times are Unix seconds, which mean the same in every server's time zone."""
    sql = resources.files("spillway_optimizer").joinpath("sql", f"{name}.sql").read_text()
    rows, columns = connection.execute(sql, dict(parameters), with_column_types=True)
    keys = [column for column, _ in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def utc(at: float) -> datetime:
    """Unix seconds as the DateTime64 columns take them."""
    return datetime.fromtimestamp(at, UTC)
