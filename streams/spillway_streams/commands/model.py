"""`model`: makes the optimizer's input from recorded traces, on stdout; needs no server."""

import argparse
import json
import sys
from pathlib import Path

from spillway_contracts import ContractError
from spillway_contracts import topology as topology_file

from spillway_streams import StreamsError
from spillway_streams.batches.columns import length
from spillway_streams.model.modelling import Options
from spillway_streams.recorded import offline, reading
from spillway_streams.recorded.clusters import Clusters, TraceFileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces", type=Path, nargs="+", required=True, metavar="FILE",
        help="Jaeger JSON, or OTLP JSON (one object, or one per line); gzipped or not",
    )  # fmt: skip
    parser.add_argument("--topology", type=Path, required=True, help="YAML; names the clusters")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--cluster", default="", metavar="NAME", help="every span was made there")
    where.add_argument(
        "--cluster-attribute", default="", metavar="KEY", help="attribute (tag) that names a span's cluster"
    )
    parser.add_argument(
        "--min-samples", type=int, default=Options().min_samples, metavar="N",
        help="calls from which on a curve is fitted; below it is assumed (default %(default)s)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Returns 0, or 1 after an error message."""
    try:
        document = _document(args)
    except (StreamsError, ContractError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    json.dump(document, sys.stdout)
    print()
    return 0


def _document(args: argparse.Namespace) -> dict:
    if args.min_samples < 1:
        raise TraceFileError(f"--min-samples: {args.min_samples}, must be at least 1")
    known = frozenset(cluster.name for cluster in topology_file.load(args.topology).clusters)
    if args.cluster and args.cluster not in known:
        raise TraceFileError(
            f"--cluster: {args.cluster!r} is not in {args.topology}; it has {', '.join(sorted(known))}"
        )
    traces = reading.read(args.traces, Clusters(known, args.cluster, args.cluster_attribute), _tell)
    recording = offline.record(traces.values())
    for reason, count in recording.odd.items():
        _tell(f"note: {count} x {reason}")
    if not length(recording.calls):
        raise TraceFileError(
            f"{', '.join(map(str, args.traces))}: {len(traces)} traces, none with a server span of a named service"
        )
    _tell_about(recording)
    return offline.document(recording, Options(min_samples=args.min_samples))


def _tell_about(recording: offline.Recording) -> None:
    calls, edges = recording.calls, recording.edges
    _tell(
        f"{length(calls)} calls and {length(edges)} edges in {offline.recorded_s(calls):.0f} s of recordings; fitting"
    )
    if length(edges) and not (edges["request_bytes"] + edges["response_bytes"]).any():
        _tell("note: no span tells a size: egress is counted as nothing")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
