"""A running agent, and test gateways: OTLP servers that record what they receive."""

import threading
from concurrent import futures
from pathlib import Path

import grpc
from collector_process import BOX, Collector, launched
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from spillway_lab.testing.tls_files import TlsFiles

NODE = "node-1"


def agent(folder: Path, gateway: str, environment: dict[str, str], *overrides: str, **more: str) -> Collector:
    """Returns an agent that is not started yet.

    `overrides` are settings over agent.yaml ("a::b: value"). `more` are environment variables
    beside those that every agent needs.
    """
    configuration = (BOX / "agent.yaml", *(f"yaml:{override}" for override in overrides))
    variables = {"SPILLWAY_NODE": NODE, "SPILLWAY_GATEWAY": gateway}
    return launched(folder, configuration, environment, variables | more)


# Python's gRPC does not support zstd. Our own gateway does (tests/component/test_cpu_path.py).
PLAIN = "exporters::otlp_grpc::compression: gzip"


class Gateway(TraceServiceServicer):
    """An OTLP/gRPC server over TLS on one address, for agents with the setting PLAIN.

    With `refusing` set, every export gets UNAVAILABLE.
    """

    def __init__(self, address: str, tls: TlsFiles) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.refusing = False
        self.refused = threading.Event()
        options = [("grpc.max_receive_message_length", 16 << 20)]  # as in config.yaml
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
        add_TraceServiceServicer_to_server(self, self._server)
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))

    def Export(self, request, context):
        if self.refusing:
            self.refused.set()
            context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")
        self.requests.append(request)
        return ExportTraceServiceResponse()

    def __enter__(self) -> "Gateway":
        self._server.start()
        return self

    def __exit__(self, *_) -> None:
        self._server.stop(0)

    def trace_ids(self) -> list[bytes]:
        """Returns the trace id of every accepted span."""
        return [
            span.trace_id
            for request in list(self.requests)
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]
