"""gRPC answers with no status or an invalid one: the filter invents no status and no culprit."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from filter_harness.client import get, traced
from filter_harness.collector import CLIENT, SERVER, Collector, Received
from filter_harness.proxy import Setup
from filter_harness.stack import Stack, running

pytestmark = pytest.mark.component


class Watch(grpc.GenericRpcHandler):
    """Sends its headers and one message at once, then nothing until the caller leaves."""

    def service(self, details):
        return grpc.unary_stream_rpc_method_handler(self.watch)

    def watch(self, request: bytes, context) -> Iterator[bytes]:
        left = threading.Event()
        context.add_callback(left.set)
        yield request
        left.wait(30)


class StatusHandler(BaseHTTPRequestHandler):
    """Answers 200 with the `grpc-status` of the path's last segment, or without one for `none`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status = self.path.rpartition("/")[2]
        self.send_response(200)
        self.send_header("content-type", self.headers["content-type"])
        if status != "none":
            self.send_header("grpc-status", status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class App:
    """One of the two applications, listening on a port."""

    def __init__(self, server: ThreadingHTTPServer | grpc.Server) -> None:
        self._server = server

    @classmethod
    def with_status(cls, port: int) -> "App":
        server = ThreadingHTTPServer(("127.0.0.1", port), StatusHandler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return cls(server)

    @classmethod
    def watch(cls, port: int) -> "App":
        server = grpc.server(ThreadPoolExecutor(4), handlers=[Watch()])
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        server.start()
        return cls(server)

    def stop(self) -> None:
        if isinstance(self._server, ThreadingHTTPServer):
            self._server.shutdown()
            self._server.server_close()
        else:
            self._server.stop(0).wait()


@pytest.fixture(scope="module")
def stack_with_status(tmp_path_factory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("envoy"), Setup(), App.with_status) as stack:
        yield stack


def spans(collector: Collector, trace: str) -> tuple[Received, Received]:
    """Waits for the client and the server span of a trace."""
    found = collector.wait_for(lambda span: span.trace_id == trace, 2)
    client, server = (next(span for span in found if span.kind == kind) for kind in (CLIENT, SERVER))
    return client, server


@pytest.mark.parametrize(
    ("kind", "status", "code", "error"),
    [
        ("application/grpc-web+proto", "none", None, None),
        ("application/grpc+proto", "none", None, None),
        ("application/grpc", "garbage", 2, "UNKNOWN"),
        ("application/grpc", "17", 2, "UNKNOWN"),
        ("application/grpc", "-1", 2, "UNKNOWN"),
        ("application/grpc", "0", 0, None),
    ],
)
def test_status_in_headers(
    stack_with_status, kind: str, status: str, code: int | None, error: str | None
) -> None:
    """gRPC-Web, with its status in the body, and answers without a status count as HTTP's 200.

    A status that is not a valid code is UNKNOWN, which is a failure on both sides.
    """
    trace, _, headers = traced()
    answer = get(
        stack_with_status.proxy.outbound,
        f"/shop.v1.Cart/{status}",
        {**headers, "content-type": kind},
        b"\0\0\0\0\0",
    )
    assert answer.status == 200
    for span in spans(stack_with_status.collector, trace):
        assert span.attributes.get("rpc.grpc.status_code") == code
        assert (span.attributes.get("error.type"), span.failed) == (error, error is not None)
        assert ("rpc.system" in span.attributes) == ("web" not in kind)


def test_cancelled_after_the_answer(tmp_path) -> None:
    """A caller leaves a stream that the server had answered.

    No status is invented, the server's span does not fail, and the flags of both spans name who
    left.
    """
    with running(tmp_path, Setup(http2=True), App.watch) as stack:
        trace, _, headers = traced()
        with grpc.insecure_channel(f"127.0.0.1:{stack.proxy.outbound}") as channel:
            call = channel.unary_stream("/shop.v1.Cart/Watch")(b"m", metadata=list(headers.items()))
            assert next(call) == b"m"
            call.cancel()
            client, server = spans(stack.collector, trace)
    for span in (client, server):
        assert span.attributes["http.response.status_code"] == 200
        assert "rpc.grpc.status_code" not in span.attributes
        assert span.attributes["spillway.response.flags"] in ("DC", "DR")
    assert client.failed and client.attributes["error.type"] in ("DC", "DR")
    assert not server.failed and "error.type" not in server.attributes
