"""The arguments that select the source of a problem, and reading from that source."""

import argparse
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, guardrails
from spillway_contracts import topology as topology_file

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import clickhouse, live, model_file, traces
from spillway_optimizer.sources.errors import InputError, SettingError
from spillway_optimizer.sources.told import Told

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_D = 3650


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of all sources."""
    group = parser.add_argument_group(
        "source",
        "one of these; with none the running mesh, by SPILLWAY_REDIS_URL and SPILLWAY_CLICKHOUSE_URL",
    )
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--traces",
        type=Path,
        action="extend",
        nargs="+",
        metavar="FILE",
        help="Jaeger or OTLP JSON, .gz allowed; takes all that follows up to the next option, so that other "
        "arguments stand before it or after --",
    )
    one.add_argument("--model", type=Path, metavar="FILE", help="JSON as contracts/golden/3_model.json")
    one.add_argument(
        "--clickhouse", metavar="URL", help="history: clickhouse://user:password@host:port/database"
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument("--cluster", metavar="NAME", help="--traces: every span was made there")
    where.add_argument(
        "--cluster-attribute", metavar="KEY", help="--traces: attribute that names a span's cluster"
    )
    group.add_argument(
        "--min-samples", type=int, metavar="N", help="--traces: calls that a curve is fitted from"
    )
    group.add_argument(
        "--since", type=when, metavar="TIME", help="--clickhouse: UTC time, or how long ago: 90m"
    )
    group.add_argument(
        "--window", type=duration, metavar="TIME", help="--clickhouse: length (default 5m): 30m"
    )
    group.add_argument("--topology", type=Path, metavar="YAML", help="default: SPILLWAY_TOPOLOGY")
    group.add_argument(
        "--guardrails",
        type=Path,
        metavar="YAML",
        help="what routes must keep to; default: SPILLWAY_GUARDRAILS",
    )


def duration(text: str) -> float:
    """Parses a duration such as 90s, 30m, 2h or 1d. Returns seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a number above 0 and one of s, m, h, d, as in 30m"
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST_D * _UNITS["d"]:
        raise argparse.ArgumentTypeError(f"{text!r}: must be at most {_LONGEST_D}d")
    return seconds


def when(text: str, now: float | None = None) -> float:
    """Parses a UTC time, or a duration before `now`. Returns Unix seconds."""
    now = datetime.now(UTC).timestamp() if now is None else now
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if seconds < now - _LONGEST_D * _UNITS["d"]:
            raise argparse.ArgumentTypeError(f"{text!r}: must be at most {_LONGEST_D} days ago")
        return seconds
    try:
        return now - duration(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a time (2026-01-31T12:00), or how long ago (90m), at most {_LONGEST_D}d"
        ) from None


def read(arguments: argparse.Namespace, progress: Progress) -> Told:
    """Reads the selected source. Raises CommandError.

    A malformed topology is a ContractError that names the file and each key.
    """
    _check(arguments)
    path = _path(arguments.topology, "SPILLWAY_TOPOLOGY")
    if path is None:
        raise InputError("--topology: missing, and SPILLWAY_TOPOLOGY is not set")
    with _of_variable("SPILLWAY_TOPOLOGY", arguments.topology):
        topology = topology_file.load(path)
    if not topology.usd_per_ms_per_million_requests > 0:
        raise InputError(f"{path}: usd_per_ms_per_million_requests: must be a number above 0")
    # Read the guardrails before any slow step, so that errors in them are reported at once.
    with _of_variable("SPILLWAY_GUARDRAILS", arguments.guardrails):
        kept = guardrails.load(_path(arguments.guardrails, "SPILLWAY_GUARDRAILS"), topology)
    return replace(_read(arguments, path, topology, progress), guardrails=kept)


@contextlib.contextmanager
def _of_variable(variable: str, given: Path | None) -> Iterator[None]:
    """Converts an error of a file that an environment variable names to a SettingError.

    An error of a file that an argument names is raised unchanged.
    """
    try:
        yield
    except ContractError as error:
        if given:
            raise
        raise SettingError("\n".join(f"{variable}: {line}" for line in str(error).splitlines())) from error


def _read(arguments: argparse.Namespace, path: Path, topology: Topology, progress: Progress) -> Told:
    if arguments.traces:
        told = traces.read(arguments, path, progress)
        return _of_document(_files(arguments.traces), told, topology)
    if arguments.model:
        return _of_document(f"model {arguments.model}", model_file.read(arguments.model), topology)
    if arguments.clickhouse:
        with progress.step("reading ClickHouse"):
            return clickhouse.read(arguments.clickhouse, topology, arguments.since, arguments.window)
    with progress.step("reading Redis and ClickHouse"):
        return live.read(topology)


def _of_document(source: str, telemetry: Telemetry, topology: Topology) -> Told:
    return Told(source, telemetry, topology, model_file.as_of(telemetry))


def _files(paths: list[Path]) -> str:
    rest = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"traces {paths[0]}{rest}"


def _path(given: Path | None, variable: str) -> Path | None:
    said = given or os.environ.get(variable)
    return Path(said) if said else None


def _check(arguments: argparse.Namespace) -> None:
    """Rejects options of another source, which would otherwise be ignored."""
    wrong = [
        f"--{name.replace('_', '-')}: only with --{source}"
        for source, names in (
            ("traces", ("cluster", "cluster_attribute", "min_samples")),
            ("clickhouse", ("since", "window")),
        )
        for name in names
        if getattr(arguments, name) is not None and not getattr(arguments, source)
    ]
    if wrong:
        raise InputError("\n".join(wrong))
