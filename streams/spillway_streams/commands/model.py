"""`model`: makes the optimizer's input from recorded traces, on stdout; needs no server."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from spillway_contracts import ContractError
from spillway_contracts import topology as topology_file
from spillway_runtime import command_line, exit_codes

from spillway_streams import StreamsError
from spillway_streams.batches.columns import length
from spillway_streams.model.modelling import Options
from spillway_streams.recorded import offline, reading
from spillway_streams.recorded.clusters import Clusters, TraceFileError


@click.command("model", cls=command_line.SpreadingCommand)
@click.option(
    "--traces",
    "files",
    cls=command_line.Spread,
    multiple=True,
    type=command_line.PATH,
    required=True,
    metavar="FILE...",
    help="Jaeger JSON, or OTLP JSON (one object, or one per line); gzipped or not.",
)
@click.option("--topology", type=command_line.PATH, required=True, help="YAML; names the clusters.")
@click.option("--cluster", default="", metavar="NAME", help="The cluster of every span.")
@click.option(
    "--cluster-attribute", default="", metavar="KEY", help="Attribute (tag) that names a span's cluster."
)
@click.option(
    "--min-samples",
    type=int,
    default=Options().min_samples,
    show_default=True,
    metavar="N",
    help="Fewest calls to fit a curve from. With fewer, the curve is assumed.",
)
@command_line.exclusive("cluster", "cluster_attribute")
def command(
    files: tuple[Path, ...], topology: Path, cluster: str, cluster_attribute: str, min_samples: int
) -> int:
    """Makes the optimizer's model from recorded traces."""
    try:
        document = _document(files, topology, cluster, cluster_attribute, min_samples)
    except (StreamsError, ContractError) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.FAILED
    json.dump(document, sys.stdout)
    print()
    return 0


def _document(
    files: Sequence[Path], topology: Path, cluster: str, cluster_attribute: str, min_samples: int
) -> dict:
    if min_samples < 1:
        raise TraceFileError(f"--min-samples: {min_samples}; must be at least 1")
    known = frozenset(cluster.name for cluster in topology_file.load(topology).clusters)
    if cluster and cluster not in known:
        raise TraceFileError(
            f"--cluster: {cluster!r} is not in {topology}; it has {', '.join(sorted(known))}"
        )
    traces = reading.read(files, Clusters(known, cluster, cluster_attribute), _report)
    recording = offline.record(traces.values())
    for reason, count in recording.odd.items():
        _report(f"note: {count} x {reason}")
    if not length(recording.calls):
        raise TraceFileError(
            f"{', '.join(map(str, files))}: {len(traces)} traces, none with a server span of a named service"
        )
    _report_recording(recording)
    return offline.document(recording, Options(min_samples=min_samples))


def _report_recording(recording: offline.Recording) -> None:
    calls, edges = recording.calls, recording.edges
    _report(
        f"{length(calls)} calls and {length(edges)} edges in {offline.recorded_s(calls):.0f} s of recordings; fitting"
    )
    if length(edges) and not (edges["request_bytes"] + edges["response_bytes"]).any():
        _report("note: no span tells a size: egress is counted as nothing")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
