"""The command that sends Jaeger recordings, with a real OTLP gRPC server."""

import subprocess
import sys
from concurrent import futures

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from spillway_lab.testing.tls_files import tls_files


class _Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Refuses the first request, as a full collector does, and accepts all later ones."""

    def __init__(self) -> None:
        self.requests: list = []
        self.refused = False

    def Export(self, request, context):
        if not self.refused:
            self.refused = True
            context.abort(grpc.StatusCode.UNAVAILABLE, "queue is full")
        self.requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def receiver():
    """Provides the receiver and its address."""
    servicer, server = _Receiver(), grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(0)


def _run(*args: str) -> subprocess.CompletedProcess:
    """Runs `python -m spillway_streams.recorded.send`."""
    command = [sys.executable, "-m", "spillway_streams.recorded.send", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_span_of_a_file_is_sent_once(receiver, hotel_reservation):
    """All 11 000 spans arrive with their cluster and sampling.

    A refused request is retried, and the command shows its progress.
    """
    servicer, endpoint = receiver
    done = _run("--cluster", "c1", "--endpoint", endpoint, "--rate", "100000", str(hotel_reservation[0]))
    assert done.returncode == 0, done.stderr
    assert "sent 11000 of 11000 spans" in done.stderr
    resources = [r for request in servicer.requests for r in request.resource_spans]
    spans = [span for r in resources for scope in r.scope_spans for span in scope.spans]
    assert len({span.span_id + span.trace_id for span in spans}) == 11_000
    assert {span.trace_state[:6] for span in spans} == {"ot=th:"}
    assert {
        a.value.string_value for r in resources for a in r.resource.attributes if a.key == "spillway.cluster"
    } == {"c1"}


def test_a_receiver_that_asks_for_certificates_is_shown_one(tmp_path, hotel_reservation):
    """With --ca, --cert and --key, spans are sent over mutual TLS.

    Without them, this receiver gets nothing.
    """
    files = tls_files(tmp_path)
    key, chain, trust = (path.read_bytes() for path in (files.key, files.certificate, files.ca))
    servicer, server = _Receiver(), grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)], trust, True))
    server.start()
    ours, file = ("--cluster", "c1", "--endpoint", f"127.0.0.1:{port}"), str(hotel_reservation[0])
    try:
        done = _run(*ours, file)
        assert done.returncode == 1 and "UNAVAILABLE" in done.stderr and not servicer.requests
        pem = ("--ca", files.ca, "--cert", files.certificate, "--key", files.key)
        done = _run(*ours, "--rate", "100000", *map(str, pem), file)
        assert done.returncode == 0 and servicer.requests, done.stderr
    finally:
        server.stop(0)


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        (["--ca", "/nowhere"], 2, "--ca, --cert and --key go together"),
        (["--ca", "/nowhere", "--cert", "/nowhere", "--key", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_wrong_certificate_files_are_named(hotel_reservation, more, status, message):
    """The three options are given together or not at all.

    A file that cannot be read is named in one line.
    """
    done = _run("--cluster", "c1", "--endpoint", "127.0.0.1:1", *more, str(hotel_reservation[0]))
    assert done.returncode == status and message in done.stderr and "Traceback" not in done.stderr


def test_errors_are_told_in_one_line(tmp_path):
    """For a file that is not a trace file, the command names the file and exits with status 1."""
    file = tmp_path / "broken.json.gz"
    file.write_bytes(b"no gzip")
    done = _run("--cluster", "c1", "--endpoint", "127.0.0.1:1", str(file))
    assert done.returncode == 1 and "broken.json.gz" in done.stderr and "Traceback" not in done.stderr
