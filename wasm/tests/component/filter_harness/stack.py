"""Runs an application, a collector and an Envoy with the real filter, and always stops them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from filter_harness import app as application
from filter_harness.client import get, traced
from filter_harness.collector import Collector
from filter_harness.proxy import Proxy, Setup, free_ports


@dataclass
class Stack:
    """The running parts of one test, and their ports."""

    proxy: Proxy
    collector: Collector
    app: Any
    app_port: int
    collector_port: int

    def traces(self) -> set[str]:
        """Returns the trace ids of all spans so far.

        Needs a single worker, whose spans leave in the order in which they ended. Therefore the
        method sends one more request and waits for its two spans, which arrive last. Their trace is
        not in the result.
        """
        assert self.proxy.setup.concurrency == 1, "several workers send in no order"
        self.proxy.wait_idle()
        trace, _, headers = traced()
        get(self.proxy.outbound, "/users/1", headers)
        self.collector.wait_for(lambda span: span.trace_id == trace, 2)
        return {span.trace_id for span in self.collector.spans} - {trace}

    def get_cut_short(self, headers: dict[str, str]) -> None:
        """Requests a response of which the application sends only half.

        The application closes the connection once that half has come through both proxies.
        """
        caller = HTTPConnection("127.0.0.1", self.proxy.outbound, timeout=30)
        with self.app.holding(), closing(caller), pytest.raises(IncompleteRead):
            caller.request("GET", "/cut", headers=headers)
            response = caller.getresponse()
            assert response.read(500) == b"x" * 500
            self.app.go.set()
            response.read()


@contextmanager
def running(
    folder: Path, setup: Setup | None = None, start: Callable[[int], Any] = application.start
) -> Iterator[Stack]:
    """Starts the three parts and stops them at the end of the block.

    `start` returns the application that listens on a given port; it must have a method `stop`.
    """
    app_port, collector_port = free_ports(2)
    with ExitStack() as stack:
        app = start(app_port)
        stack.callback(app.stop)
        collector = Collector(collector_port)
        stack.callback(collector.stop)
        proxy = Proxy(folder, app_port, collector_port, setup)
        stack.callback(proxy.stop)
        yield Stack(proxy, collector, app, app_port, collector_port)
