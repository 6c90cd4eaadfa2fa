"""The options that select the source of a problem, and reading from that source."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import guardrails
from spillway_runtime import command_line

from spillway_optimizer.commands import mesh_files, options
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import clickhouse, live, model_file, traces
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.sources.source_data import SourceData

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_D = 3650


@dataclass(frozen=True)
class Source:
    """The values of the options, as given."""

    traces: tuple[Path, ...]
    model: Path | None
    clickhouse: str | None
    cluster: str | None
    cluster_attribute: str | None
    min_samples: int | None
    since: float | None
    window: float | None
    topology: Path | None
    guardrails: Path | None


def duration(text: str) -> float:
    """Parses a duration such as 90s, 30m, 2h or 1d. Returns seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found or float(found[1]) <= 0:
        raise click.BadParameter(f"{text!r}: must be a number above 0 and one of s, m, h, d, as in 30m")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST_D * _UNITS["d"]:
        raise click.BadParameter(f"{text!r}: must be at most {_LONGEST_D}d")
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
            raise click.BadParameter(f"{text!r}: must be at most {_LONGEST_D} days ago")
        return seconds
    try:
        return now - duration(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r}: must be a time (2026-01-31T12:00), or how long ago (90m), at most {_LONGEST_D}d"
        ) from None


_gathered = options.gathered(
    Source,
    "source",
    click.option(
        "--traces",
        cls=command_line.Spread,
        multiple=True,
        type=command_line.PATH,
        metavar="FILE...",
        help="Jaeger or OTLP JSON, .gz allowed. Takes every argument up to the next option. Put other "
        "arguments before it or after --.",
    ),
    click.option(
        "--model", type=command_line.PATH, metavar="FILE", help="JSON as contracts/golden/3_model.json."
    ),
    click.option("--clickhouse", metavar="URL", help="clickhouse://user:password@host:port/database."),
    click.option("--cluster", metavar="NAME", help="--traces: the cluster of every span."),
    click.option(
        "--cluster-attribute", metavar="KEY", help="--traces: attribute that names a span's cluster."
    ),
    click.option("--min-samples", type=int, metavar="N", help="--traces: fewest calls to fit a curve from."),
    click.option("--since", type=when, metavar="TIME", help="--clickhouse: UTC time, or how long ago: 90m."),
    click.option("--window", type=duration, metavar="TIME", help="--clickhouse: length (default 5m): 30m."),
    mesh_files.topology_option,
    mesh_files.guardrails_option,
)


def source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of all sources. The command gets their values as one Source, `source`."""
    one_source = command_line.exclusive("traces", "model", "clickhouse")
    one_cluster = command_line.exclusive("cluster", "cluster_attribute")
    return one_source(one_cluster(_gathered(command)))


def read(source: Source, progress: Progress) -> SourceData:
    """Reads the selected source. Raises CommandError.

    A malformed topology is a ContractError that names the file and each key.
    """
    _check(source)
    path, topology = mesh_files.topology(source.topology)
    # Read the guardrails before any slow step, so that errors in them are reported at once.
    with mesh_files.of_variable(mesh_files.GUARDRAILS, source.guardrails):
        kept = guardrails.load(mesh_files.path_of(source.guardrails, mesh_files.GUARDRAILS), topology)
    return replace(_read(source, path, topology, progress), guardrails=kept)


def _read(source: Source, path: Path, topology: Topology, progress: Progress) -> SourceData:
    if source.traces:
        telemetry = traces.read(source.traces, _of_traces(source), path, progress)
        return _of_document(_files(source.traces), telemetry, topology)
    if source.model:
        return _of_document(f"model {source.model}", model_file.read(source.model), topology)
    if source.clickhouse:
        with progress.step("reading ClickHouse"):
            return clickhouse.read(source.clickhouse, topology, source.since, source.window)
    with progress.step("reading Redis and ClickHouse"):
        return live.read(topology)


def _of_document(source: str, telemetry: Telemetry, topology: Topology) -> SourceData:
    return SourceData(source, telemetry, topology, model_file.as_of(telemetry))


def _files(paths: Sequence[Path]) -> str:
    rest = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"traces {paths[0]}{rest}"


def _check(source: Source) -> None:
    """Rejects options of another source, which would otherwise be ignored."""
    of_clickhouse = {"--since": source.since, "--window": source.window}
    wrong = [
        f"{flag}: only with --{name}"
        for name, chosen, given in (
            ("traces", source.traces, _of_traces(source)),
            ("clickhouse", source.clickhouse, of_clickhouse),
        )
        for flag, value in given.items()
        if value is not None and not chosen
    ]
    if wrong:
        raise InputError("\n".join(wrong))


def _of_traces(source: Source) -> dict[str, str | int | None]:
    """Returns the options that only --traces has, as streams has them too."""
    return {
        "--cluster": source.cluster,
        "--cluster-attribute": source.cluster_attribute,
        "--min-samples": source.min_samples,
    }
