"""Sends Jaeger traces to an OTLP gRPC endpoint at a bounded rate, with progress on stderr.

python -m spillway_streams.recorded.send --cluster NAME --endpoint HOST:PORT
    [--rate N] [--ca PEM --cert PEM --key PEM] FILE...
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from spillway_runtime import command_line, exit_codes

from spillway_streams.recorded import jaeger

_TIMEOUT_S = 10.0
_ATTEMPTS = 6
_RETRY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}


@dataclass(frozen=True)
class Tls:
    """PEM files of a receiver that asks for certificates."""

    ca: Path
    cert: Path
    key: Path

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises OSError when a file cannot be read."""
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(), self.key.read_bytes(), self.cert.read_bytes()
        )


def send(
    batches: Iterable[ExportTraceServiceRequest],
    endpoint: str,
    rate: float,
    total: int,
    tls: Tls | None = None,
) -> int:
    """Sends at most `rate` spans per second. Returns the number of spans in the accepted batches.

    The connection is not encrypted without `tls`. Raises grpc.RpcError when a batch is rejected, or
    is still unavailable after several attempts. Raises OSError when a file of `tls` cannot be read.
    """
    channel = grpc.secure_channel(endpoint, tls.credentials()) if tls else grpc.insecure_channel(endpoint)
    sent, began = 0, time.monotonic()
    with channel:
        stub = TraceServiceStub(channel)
        for batch in batches:
            _export(stub, batch)
            sent += sum(len(scope.spans) for r in batch.resource_spans for scope in r.scope_spans)
            print(f"\rsent {sent} of {total} spans", end="", file=sys.stderr, flush=True)
            time.sleep(max(0.0, sent / rate - (time.monotonic() - began)))
    print(file=sys.stderr)
    return sent


def _export(stub: TraceServiceStub, batch: ExportTraceServiceRequest) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            answer = stub.Export(batch, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() not in _RETRY or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.25 * 2**attempt)
            continue
        if rejected := answer.partial_success.rejected_spans:
            print(f"\n{rejected} spans rejected: {answer.partial_success.error_message}", file=sys.stderr)
        return


@click.command(cls=command_line.Command)
@click.argument("files", nargs=-1, required=True, type=command_line.PATH, metavar="FILE...")
@click.option("--cluster", required=True, help="Cluster that the traces were recorded in.")
@click.option("--endpoint", required=True, help="host:port of an OTLP gRPC receiver.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20_000,
    show_default=True,
    help="Spans per second at most.",
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=500, show_default=True, help="Spans per request at most."
)
@click.option(
    "--ca",
    type=command_line.PATH,
    metavar="PEM",
    help="Authorities of the receiver; with --cert and --key: mutual TLS, without: in clear.",
)
@click.option("--cert", type=command_line.PATH, metavar="PEM", help="Certificate to show.")
@click.option("--key", type=command_line.PATH, metavar="PEM", help="Its private key.")
def main(
    files: tuple[Path, ...], cluster: str, endpoint: str, rate: float, batch: int, **pem: Path | None
) -> int:
    """Sends Jaeger traces to an OTLP gRPC endpoint at a bounded rate.

    FILE is Jaeger UI JSON, .gz allowed. Progress goes to stderr.
    """
    given = {name: file for name, file in pem.items() if file}
    if len(given) not in (0, 3):
        raise click.UsageError("--ca, --cert and --key go together; allowed: all three or none")
    tls = Tls(**given) if given else None
    try:
        traces = jaeger.in_time_order(trace for path in files for trace in jaeger.read(path))
        total = sum(len(trace["spans"]) for trace in traces)
        sent = send(jaeger.batches(traces, cluster, batch), endpoint, rate, total, tls)
    except (jaeger.JaegerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.FAILED
    except grpc.RpcError as error:
        print(f"\nerror: {endpoint}: {error.code().name}: {error.details()}", file=sys.stderr)
        return exit_codes.FAILED
    return 0 if sent == total else exit_codes.FAILED


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_streams.recorded.send"))
