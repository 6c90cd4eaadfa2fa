"""GET /healthz over plain HTTP: 200 when ready, else 503 with the reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Health:
    """Serves from a separate thread. `reason` returns '' when ready, else why not."""

    def __init__(self, host: str, port: int, reason: Callable[[], str]):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                why = reason() if self.path == "/healthz" else "only /healthz is here"
                status = 404 if self.path != "/healthz" else 503 if why else 200
                body = f"{why or 'ready'}\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass  # a probe each second is not worth a log line

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
