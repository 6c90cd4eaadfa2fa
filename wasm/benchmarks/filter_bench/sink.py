"""An OTLP/gRPC service that accepts spans and totals, and only counts the spans: `sink.py PORT`.

For each line on standard input, it writes the number of received spans to standard output.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metric_messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metric_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service


class Sink(service.TraceServiceServicer):
    """Accepts every export of spans and counts them."""

    def __init__(self) -> None:
        self.spans = 0

    def Export(self, request, context):
        # There is one worker thread, so no lock is needed.
        self.spans += sum(len(scope.spans) for group in request.resource_spans for scope in group.scope_spans)
        return messages.ExportTraceServiceResponse()


class Totals(metric_service.MetricsServiceServicer):
    """Accepts every export of totals and ignores it."""

    def Export(self, request, context):
        return metric_messages.ExportMetricsServiceResponse()


def main() -> None:
    sink = Sink()
    server = grpc.server(
        ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
    )
    service.add_TraceServiceServicer_to_server(sink, server)
    metric_service.add_MetricsServiceServicer_to_server(Totals(), server)
    port = int(sys.argv[1])
    if server.add_insecure_port(f"127.0.0.1:{port}") != port:
        raise SystemExit(f"sink: port {port} is taken")
    server.start()
    for _ in sys.stdin:
        print(sink.spans, flush=True)
    server.stop(0)


if __name__ == "__main__":
    main()
