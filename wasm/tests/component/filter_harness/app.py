"""A small test application: the request path selects the answer.

JSON answers contain the headers and the number of body bytes that the application received.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Handles one connection; `do_GET` lists the actions that a path can select."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        action, _, argument = self.path.partition("?")[0].strip("/").partition("/")
        if action == "slow":
            time.sleep(int(argument) / 1000)
        if action == "held":
            self.server.go.wait(60)
        if action == "reset":
            self.close_connection = True
            return
        if action == "upgrade":
            self.upgrade()
            return
        if action == "cut":
            self.cut()
            return
        status = int(argument) if action == "status" else 200
        if action == "once":
            status = 200 if argument in self.server.once else 500
            self.server.once.add(argument)
        kind = "text/event-stream" if action == "events" else "application/json"
        self.answer(status, kind)

    do_POST = do_GET

    def answer(self, status: int, kind: str) -> None:
        received = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.dumps({"headers": headers, "received": len(received)}).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        """Sends half of the body that the headers promise, then closes the connection."""
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 500)
        self.wfile.flush()
        self.server.go.wait(60)
        self.close_connection = True

    def upgrade(self) -> None:
        self.send_response(101)
        self.send_header("connection", "upgrade")
        self.send_header("upgrade", "websocket")
        self.end_headers()
        self.close_connection = True
        self.server.go.wait(60)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class Server(ThreadingHTTPServer):
    """A server whose handlers can wait until `go` is set."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.once: set[str] = set()
        self.go = threading.Event()
        self.go.set()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Holds `/held/…`, `/cut` and `/upgrade` open in the block; releases them at its end."""
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def stop(self) -> None:
        self.go.set()
        self.shutdown()
        self.server_close()


def start(port: int) -> Server:
    """Starts the application on a port, in a thread of its own."""
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
