"""Reads a model from a file or a program's output, and checks it key by key.

The format is that of contracts/golden/3_model.json.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from spillway_contracts import ContractError, traffic_class
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry

from spillway_optimizer.inputs import telemetry
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.sources.errors import InputError

_TABLES = ("curves", "capacities", "call_ratios")
_BOARDS = {"load": LoadBoardEntry, "demand": DemandEntry}
# The network board is made from network_times. Other readers of the file need them.
_KNOWN = {*_TABLES, *_BOARDS, "network", "network_times", "placement", "outcomes"}
_MISSING = object()
_ARTICLES = {int: "an"}
_MOST_SHOWN = 10


def read(path: Path) -> Telemetry:
    """Reads a model file. Raises InputError with the file, and the place or the keys in it."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Telemetry:
    """Parses a model document with demand. Errors refer to it as `name`. Raises InputError."""
    document = decoded(text, name)
    found = of_document(document, name)
    if not any(found.demand.values()):
        # Without the time of any demand, there is no time at which to judge the other rows.
        what = "the requests that users make, by cluster and entry class, are what is planned"
        raise InputError(f"{name}: demand: empty; {what}")
    return found


def decoded(text: str, name: str) -> Any:
    """Decodes JSON. Raises InputError with the place of what is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{name}: nested too deep to be a model") from error


def of_document(document: Any, name: str) -> Telemetry:
    """Converts a decoded model, whose demand may be empty. Raises InputError with the keys."""
    if found := problems(document):
        rest = [f"{name}: and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
        raise InputError("\n".join([f"{name}: {problem}" for problem in found[:_MOST_SHOWN]] + rest))
    try:
        return telemetry.from_document(document)
    except ContractError as error:
        raise InputError(f"{name}: {error}") from error


def as_of(telemetry: Telemetry) -> float:
    """Returns the time at which a document is judged: that of its newest demand."""
    return max((entry.at for board in telemetry.demand.values() for entry in board.values()), default=0.0)


def problems(document: Any) -> list[str]:
    """Returns everything that is wrong with a document, each with its key.

    Single rows of tables are checked later, and unusable ones are left out one by one.
    """
    if not isinstance(document, dict):
        return [f"a model is an object, not {_kind(document)}"]
    found = [
        f"{name}: unknown; known: {', '.join(sorted(_KNOWN))}" for name in document if name not in _KNOWN
    ]
    for table in _TABLES:
        rows = document.get(table, _MISSING)
        if not isinstance(rows, list):
            found.append(f"{table}: {_kind(rows)}, must be a list of objects")
            continue
        found += [
            f"{table}[{n}]: {_kind(row)}, must be an object"
            for n, row in enumerate(rows)
            if not isinstance(row, dict)
        ]
    for name, kind in _BOARDS.items():
        for cluster, board in _objects(found, name, document.get(name, _MISSING)):
            for class_id, entry in _objects(found, f"{name}.{cluster}", board):
                key = f"{name}.{cluster}[{class_id!r}]"
                found += _class(key, class_id) + _entry(key, entry, kind)
    for pair, entry in _objects(found, "network", document.get("network", {})):
        found += _entry(f"network[{pair!r}]", entry, NetworkEntry)
    for cluster, services in _objects(found, "placement", document.get("placement", {})):
        if services is not None and not isinstance(services, list | dict):
            found.append(
                f"placement.{cluster}: {_kind(services)}, must be a list of services, an object of services with "
                "their numbers of pods, or null"
            )
        found += [
            f"placement.{cluster}[{service!r}]: {count!r}, must be a whole number of at least 0"
            for service, count in (services.items() if isinstance(services, dict) else ())
            if not isinstance(count, int) or isinstance(count, bool) or count < 0
        ]
        found += [
            f"placement.{cluster}[{n}]: {_kind(service)}, must be the name of a service"
            for n, service in enumerate(services if isinstance(services, list) else ())
            if not isinstance(service, str)
        ]
    return found


def _objects(found: list[str], key: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    found.append(f"{key}: {_kind(value)}, must be an object")
    return []


def _class(key: str, class_id: str) -> list[str]:
    try:
        traffic_class.parse(class_id)
    except ContractError as error:
        return [f"{key}: {error}"]
    return []


def _entry(key: str, entry: Any, kind: type) -> list[str]:
    if not isinstance(entry, dict):
        return [f"{key}: {_kind(entry)}, must be an object"]
    known = {field.name for field in fields(kind)}
    found = [f"{key}.{name}: missing" for name in sorted(known - entry.keys())]
    found += [
        f"{key}.{name}: unknown; known: {', '.join(sorted(known))}" for name in sorted(entry.keys() - known)
    ]
    return found + [
        f"{key}.{name}: {entry[name]!r}, must be a number of at least 0"
        for name in sorted(known & entry.keys())
        if not _sound(entry, name)
    ]


def _sound(entry: Mapping[str, Any], name: str) -> bool:
    value = entry[name]
    if value is None:
        return name == "cpu"
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


def _kind(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    return "null" if value is None else f"{_ARTICLES.get(type(value), 'a')} {type(value).__name__}"
