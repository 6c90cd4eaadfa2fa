"""HTTP endpoints for health and metrics.

`GET /healthz` answers 200 once the process is ready, and 503 with the reason before that. Its body
holds the counters. `GET /metrics` answers in the Prometheus format.
"""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spillway_contracts.metrics import CONTENT_TYPE, Exposition


class Health:
    """Serves the endpoints on host:port from its own thread.

    Raises OSError when the address is in use.
    """

    def __init__(self, listen: str, counters: Mapping[str, int], exposition: Exposition):
        self.waiting_for: str | None = "start"  # None once the process is ready
        host, _, port = listen.rpartition(":")
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/metrics":
                    self._answer(200, CONTENT_TYPE, exposition.text())
                    return
                waiting = health.waiting_for
                status = 404 if self.path != "/healthz" else 503 if waiting else 200
                document = {"ready": waiting is None, "waiting_for": waiting, "counters": dict(counters)}
                body = (json.dumps(document) + "\n").encode()
                self._answer(status, "application/json", body)

            def _answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer((host, int(port)), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stops the server and closes its socket."""
        self._server.shutdown()
        self._server.server_close()
