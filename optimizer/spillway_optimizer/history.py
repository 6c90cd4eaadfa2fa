"""ClickHouse: the model's rows in, solves and PAPA steps out. Blocking; callers run it in a thread."""

import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from clickhouse_driver import Client

from spillway_optimizer.telemetry import CapacityRow, CurveRow, RatioRow, read_rows

# Short, so that a stop is never held up by a server that does not answer.
_TIMEOUTS = {"connect_timeout": "2", "send_receive_timeout": "3"}
_MOST_WAITING = 5000


@dataclass(frozen=True)
class ModelRows:
    curves: tuple[CurveRow, ...]
    capacities: tuple[CapacityRow, ...]
    call_ratios: tuple[RatioRow, ...]
    malformed: tuple[str, ...]


class History:
    """Rows that cannot be written now wait, oldest first, up to a bound; `lost` counts what fell off."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        query = urlencode({**_TIMEOUTS, **dict(parse_qsl(parts.query))})
        self._client = Client.from_url(urlunsplit(parts._replace(query=query)))
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        # One connection, one query at a time.
        self._lock = threading.Lock()
        self.lost = 0

    def model(self) -> ModelRows:
        """Raises clickhouse_driver.errors.Error or OSError."""
        with self._lock:
            curves, bad1 = read_rows(CurveRow, self._select("curves"))
            capacities, bad2 = read_rows(CapacityRow, self._select("capacities"))
            ratios, bad3 = read_rows(RatioRow, self._select("call_ratios"))
        return ModelRows(curves, capacities, ratios, bad1 + bad2 + bad3)

    def _select(self, name: str) -> list[dict[str, Any]]:
        sql = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text()
        rows, columns = self._client.execute(sql, with_column_types=True)
        keys = [column for column, _ in columns]
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Queues one row; `flush` writes it."""
        self._waiting.append((table, row))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1

    def flush(self) -> None:
        """Writes what waits. Raises as `model` does; rows not written stay."""
        with self._lock:
            while self._waiting:
                table, row = self._waiting[0]
                self._client.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES", [row])
                self._waiting.popleft()

    def close(self) -> None:
        self._client.disconnect()


def utc(at: float) -> datetime:
    """Unix seconds as the DateTime64 columns take them."""
    return datetime.fromtimestamp(at, UTC)
