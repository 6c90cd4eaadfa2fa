"""History as a source: reads a situation from the tables of ClickHouse.

The model's rows are read as of the end of a time window. The boards that Redis had are rebuilt from
the calls in the window.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from clickhouse_driver import Client
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry

from spillway_optimizer.clients import history
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.problem.rules import RuleKey, Rules
from spillway_optimizer.service.reading import CLICKHOUSE_AWAY
from spillway_optimizer.solving import config
from spillway_optimizer.sources.errors import InputError, UnavailableError
from spillway_optimizer.sources.source_data import SourceData

_CONNECT_S, _ANSWER_S = 3, 120
# streams/ stores whole traces a few seconds after they end.
SETTLED_S = 15.0


@dataclass(frozen=True)
class Window:
    """A time window, start <= t < end, Unix seconds."""

    start: float
    end: float

    def __str__(self) -> str:
        return f"{_text(self.start)} to {_text(self.end)} UTC"


def window(since: float | None, seconds: float | None, now: float) -> Window:
    """Returns the window of `seconds` that starts at `since`, or that lasts until now.

    Without `since`, it is the newest window whose traces are stored. Its default length is five
    minutes. Raises InputError if `since` is in the future.
    """
    if since is None:
        end = now - SETTLED_S
        return Window(end - (seconds or 300.0), end)
    if since >= now:
        raise InputError(f"--since: {_text(since)} UTC lies ahead")
    end = min(since + seconds, now) if seconds else now
    return Window(since, end)


def read(url: str, topology: Topology, since: float | None, seconds: float | None) -> SourceData:
    """Reads a situation from ClickHouse.

    Raises UnavailableError if ClickHouse does not answer, and InputError if it has no data of the
    window.
    """
    asked = window(since, seconds, time.time())
    try:
        parts, client = urlsplit(config.clickhouse_url(url)), history.client(url, _CONNECT_S, _ANSWER_S)
    except ValueError as error:
        raise InputError(f"--clickhouse: {error}") from None
    try:
        return _read(_Reader(client, asked), topology)
    except CLICKHOUSE_AWAY as error:
        # The URL without user and password.
        where = f"{parts.hostname}:{parts.port or 9000}{parts.path}"
        message = " ".join(str(error).split("Stack trace:")[0].split())[:300]
        raise UnavailableError(f"--clickhouse: {where}: {type(error).__name__}: {message}") from None
    finally:
        client.disconnect()


class _Reader:
    def __init__(self, client: Client, asked: Window):
        self._client, self.window = client, asked

    def rows(self, name: str) -> list[dict[str, Any]]:
        return history.select(self._client, f"window_{name}", asdict(self.window))

    def model(self) -> history.ModelRows:
        return history.model_rows(self._client, self.window.end)


def _read(reader: _Reader, topology: Topology) -> SourceData:
    asked = reader.window
    load, demand = boards(reader.rows("calls"), reader.rows("cpu"), asked)
    if not demand:
        newest = reader.rows("newest")[0]["newest"]
        has = f"the newest call is of {_text(newest)} UTC" if newest else "there are no calls at all"
        raise InputError(f"--clickhouse: table calls has no entry call from {asked}; {has}")
    model = reader.model()
    network = {
        (row["source_cluster"], row["destination_cluster"]): NetworkEntry(
            asked.end, row["mean_ms"], int(row["samples"])
        )
        for row in reader.rows("network")
    }
    in_force, version, at = rules(reader.rows("rules"))
    return SourceData(
        f"ClickHouse, {asked}",
        Telemetry(
            model.curves,
            model.capacities,
            model.call_ratios,
            load,
            demand,
            network,
            malformed=model.malformed,
            network_rows=model.network,
        ),
        topology,
        asked.end,
        in_force,
        f"version {version} of {_text(at)} UTC" if in_force else "",
        ("placement: heartbeats are not in ClickHouse; what the topology declares is assumed",),
    )


def boards(
    calls: Iterable[Mapping[str, Any]], cpu: Iterable[Mapping[str, Any]], asked: Window
) -> tuple[dict[str, dict[str, LoadBoardEntry]], dict[str, dict[str, DemandEntry]]]:
    """Returns load and demand as the boards would have shown them, as means over the window.

    `calls`: sums by cluster, service, class and whether the call was an entry. `cpu`: mean
    utilisation share by cluster and service.
    """
    used = {(row["cluster"], row["service"]): row["utilisation"] for row in cpu}
    seconds = asked.end - asked.start
    load: dict[str, dict[str, LoadBoardEntry]] = {}
    demand: dict[str, dict[str, DemandEntry]] = {}
    sums: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in calls:
        total = sums.setdefault((row["cluster"], row["service"], row["class"]), {})
        for name in ("calls", "failed", "duration_ms", "exclusive_ms", "in_flight"):
            total[name] = total.get(name, 0.0) + row[name]
        if row["entry"]:
            good = row["calls"] - row["failed"]
            demand.setdefault(row["cluster"], {})[row["class"]] = DemandEntry(
                asked.end,
                row["calls"] / seconds,
                row["failed"] / row["calls"],
                _ratio(row["duration_ms"], good),
            )
    for (cluster, service, class_id), s in sums.items():
        good = s["calls"] - s["failed"]
        load.setdefault(cluster, {})[class_id] = LoadBoardEntry(
            asked.end, s["calls"] / seconds, s["failed"] / s["calls"], _ratio(s["duration_ms"], good),
            _ratio(s["exclusive_ms"], good), s["in_flight"] / s["calls"], used.get((cluster, service)),
        )  # fmt: skip
    return load, demand


def rules(rows: Sequence[Mapping[str, Any]]) -> tuple[Rules | None, int, float]:
    """Returns the rules, the newest version of all clusters, and when that version was published.

    The time is in Unix seconds. Without rows, the rules are None.
    """
    found: dict[RuleKey, dict[str, int]] = {}
    for row in rows:
        key = RuleKey(row["source_cluster"], row["source_service"], row["class"])
        if row["weight"] > 0:
            found.setdefault(key, {})[row["destination_cluster"]] = int(row["weight"])
    newest = max(rows, key=lambda row: row["version"], default=None)
    return (found, int(newest["version"]), float(newest["at"])) if newest else (None, 0, 0.0)


def _ratio(total: float, count: float) -> float:
    return total / count if count > 0 else 0.0


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
