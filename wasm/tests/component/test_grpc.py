"""gRPC through both listeners: status in trailers, in trailers-only answers, and after resets."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import pytest
from filter_harness.client import traced
from filter_harness.collector import CLIENT, SERVER, Collector, Received
from filter_harness.proxy import Proxy, Setup
from filter_harness.rpc import SERVICE, RpcApp, path
from filter_harness.stack import Stack, running

pytestmark = pytest.mark.component


@dataclass
class Rpc:
    """A running stack, and a gRPC channel to its outbound listener."""

    stack: Stack
    channel: grpc.Channel

    @property
    def proxy(self) -> Proxy:
        return self.stack.proxy

    @property
    def collector(self) -> Collector:
        return self.stack.collector

    def spans(self, trace: str) -> tuple[Received, Received]:
        """Waits for the client and the server span of a trace."""
        found = self.collector.wait_for(lambda span: span.trace_id == trace, 2)
        client, server = (next(span for span in found if span.kind == kind) for kind in (CLIENT, SERVER))
        return client, server


@contextmanager
def channel_through(folder, setup: Setup) -> Iterator[Rpc]:
    """Runs a gRPC application behind both listeners."""
    with running(folder, setup, RpcApp) as stack:
        with grpc.insecure_channel(f"127.0.0.1:{stack.proxy.outbound}") as channel:
            yield Rpc(stack, channel)


@pytest.fixture(scope="module")
def rpc(tmp_path_factory) -> Iterator[Rpc]:
    with channel_through(tmp_path_factory.mktemp("envoy"), Setup(http2=True)) as rpc:
        yield rpc


def metadata(headers: dict[str, str]) -> list[tuple[str, str]]:
    return list(headers.items())


@pytest.mark.parametrize(
    ("method", "code", "client_error", "server_error"),
    [
        ("Add", 0, None, None),
        ("Find", 5, "NOT_FOUND", None),
        ("Break", 14, "UNAVAILABLE", "UNAVAILABLE"),
        ("Nothing", 12, "UNIMPLEMENTED", "UNIMPLEMENTED"),
    ],
)
def test_unary(rpc: Rpc, method: str, code: int, client_error: str | None, server_error: str | None) -> None:
    """Both sides record the status.

    Which codes count as errors depends on the side, by convention.
    """
    trace, _, headers = traced()
    call = rpc.channel.unary_unary(path(method))
    if code:
        with pytest.raises(grpc.RpcError) as failure:
            call(b"x" * 1000, metadata=metadata(headers), timeout=30)
        assert failure.value.code().value[0] == code
    else:
        assert call(b"x" * 1000, metadata=metadata(headers), timeout=30) == b"x" * 1000
    for span, error in zip(rpc.spans(trace), (client_error, server_error), strict=True):
        expected = {
            "rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": method, "rpc.grpc.status_code": code,
            "http.response.status_code": 200, "network.protocol.version": "2", "http.request.method": "POST",
        }  # fmt: skip
        assert expected.items() <= span.attributes.items()
        assert span.name == f"{SERVICE}/{method}"
        assert (span.attributes.get("error.type"), span.failed) == (error, error is not None)
        assert span.attributes["http.request.body.size"] == 1005, "the message and its five bytes of frame"
        assert span.attributes["http.response.body.size"] == (0 if code else 1005)


def test_status_in_trailers_after_messages(rpc: Rpc) -> None:
    """A stream that breaks after three messages is a failed call, although HTTP's status is 200."""
    trace, _, headers = traced()
    got = []
    with pytest.raises(grpc.RpcError):
        for message in rpc.channel.unary_stream(path("Watch"))(b"m", metadata=metadata(headers), timeout=30):
            got.append(message)
    assert len(got) == 3
    for span in rpc.spans(trace):
        assert span.attributes["rpc.grpc.status_code"] == 15 and span.failed
        assert span.attributes["error.type"] == "DATA_LOSS"


def test_early_resets(rpc: Rpc) -> None:
    """A caller resets before the answer: its load is released at once.

    The application still works at that time. The span has no status, and says why.
    """
    for _ in range(10):
        trace, _, headers = traced()
        call = rpc.channel.unary_unary(path("Wait")).future(b"w", metadata=metadata(headers))
        rpc.proxy.wait_stat("inbound_in_flight", lambda value: value == 1)
        call.cancel()
        for span in rpc.spans(trace):
            assert span.failed and "http.response.status_code" not in span.attributes
            assert "rpc.grpc.status_code" not in span.attributes
            assert span.attributes["error.type"] in ("DC", "DR", "_OTHER")
        stats = rpc.proxy.stats()
        assert (stats["inbound_in_flight"], stats["outbound_in_flight"]) == (0, 0)


def test_a_call_that_outlives_every_call_is_a_stream(tmp_path) -> None:
    """After `long_lived_after_ms` a call is no longer load, is counted once, and leaves no span."""
    setup = Setup(http2=True, concurrency=1, overrides={"long_lived_after_ms": 1000})
    with channel_through(tmp_path, setup) as rpc:
        _, _, headers = traced()
        call = rpc.channel.unary_unary(path("Wait")).future(b"w", metadata=metadata(headers))
        for side in ("inbound", "outbound"):
            rpc.proxy.wait_stat(f"{side}_long_lived", lambda value: value == 1)
            stats = rpc.proxy.stats()
            assert (stats[f"{side}_arrivals"], stats[f"{side}_in_flight"]) == (1, 0)
        assert not call.done(), "it is still open, and already no load"
        call.cancel()
        assert not rpc.stack.traces()
        stats = rpc.proxy.stats()
        assert stats["inbound_in_flight"] == stats["outbound_in_flight"] == 0
        assert stats["inbound_long_lived"] == stats["outbound_long_lived"] == 1
