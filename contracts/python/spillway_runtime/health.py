"""HTTP endpoints for health and metrics, the same in every program.

| path | answer |
|---|---|
| /livez | 200 as long as the program answers; an orchestrator restarts it otherwise |
| /readyz | 200 when the program is ready, else 503 |
| /metrics | the Prometheus text format |

The body of the first two is the same JSON object (`document`). /healthz is the former name of
/readyz. The next version removes it.
"""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from spillway_runtime.metrics import CONTENT_TYPE, Exposition
from spillway_runtime.settings import address


class Report(NamedTuple):
    """What a program reports of itself.

    Parameters
    ----------
    problems
        Reason by server or part for which the program is not ready; empty when it is.
    degraded
        Reason by server without which the program works, with less information.
    counters, gauges
        Values by name.
    """

    problems: Mapping[str, str]
    degraded: Mapping[str, str] = {}
    counters: Mapping[str, int] = {}
    gauges: Mapping[str, float] = {}


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


def document(report: Report) -> dict[str, Any]:
    """Returns the JSON object that /livez and /readyz answer."""
    return {"ready": not report.problems, **{key: dict(value) for key, value in report._asdict().items()}}


def answer(path: str, report: Callable[[], Report], exposition: Exposition | None) -> Answer:
    """Returns the answer to a GET of this path."""
    if path == "/metrics" and exposition is not None:
        return Answer(200, CONTENT_TYPE, exposition.text())
    if path not in ("/livez", "/readyz", "/healthz"):
        known = "/livez, /readyz" + (", /metrics" if exposition else "")
        return _json(404, {"error": f"{path}: must be one of {known}"})
    found = report()
    return _json(503 if found.problems and path != "/livez" else 200, document(found))


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listen: str, handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = address(listen)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)


class Server:
    """Answers on host:port from its own thread. Raises OSError when it cannot listen there."""

    def __init__(
        self, listen: str, report: Callable[[], Report], exposition: Exposition | None = None
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answer(self.path.partition("?")[0], report, exposition)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing: a probe each second is not worth a line."""

        self._server = _Listener(listen, Handler)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stops the server and closes its socket."""
        self._server.shutdown()
        self._server.server_close()


def _json(status: int, value: Mapping[str, Any]) -> Answer:
    return Answer(status, "application/json", (json.dumps(value) + "\n").encode())
