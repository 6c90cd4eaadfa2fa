"""Sends Jaeger traces to an OTLP gRPC endpoint at a bounded rate, with progress on stderr.

python -m spillway_streams.recorded.send --cluster NAME --endpoint HOST:PORT
    [--rate N] [--ca PEM --cert PEM --key PEM] FILE...
"""

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spillway_streams.recorded.send", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="Jaeger UI JSON, optionally .gz")
    parser.add_argument("--cluster", required=True, help="cluster that the traces were recorded in")
    parser.add_argument("--endpoint", required=True, help="host:port of an OTLP gRPC receiver")
    parser.add_argument("--rate", type=float, default=20_000, help="spans per second at most (default 20000)")
    parser.add_argument("--batch", type=int, default=500, help="spans per request at most (default 500)")
    for name, what in (
        ("--ca", "authorities of the receiver; with --cert and --key: mutual TLS, without: in clear"),
        ("--cert", "certificate to show"),
        ("--key", "its private key"),
    ):
        parser.add_argument(name, type=Path, metavar="PEM", help=what)
    args = parser.parse_args()
    given = [file for file in (args.ca, args.cert, args.key) if file]
    if len(given) not in (0, 3):
        parser.error("--ca, --cert and --key go together; allowed: all three or none")
    if args.rate <= 0 or args.batch <= 0:
        parser.error("--rate and --batch must be above 0")
    tls = Tls(*given) if given else None
    try:
        traces = jaeger.in_time_order(trace for path in args.files for trace in jaeger.read(path))
        total = sum(len(trace["spans"]) for trace in traces)
        sent = send(jaeger.batches(traces, args.cluster, args.batch), args.endpoint, args.rate, total, tls)
    except (jaeger.JaegerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"\nerror: {args.endpoint}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    return 0 if sent == total else 1


if __name__ == "__main__":
    sys.exit(main())
