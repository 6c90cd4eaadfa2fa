"""The process that keeps Toxiproxy as planned across its restarts: `python -m spillway_lab wan`."""

import logging
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spillway_lab.scenario.errors import LabError
from spillway_lab.stack.wan import Wan

log = logging.getLogger("spillway.wan")


class Keeper:
    """Applies the plan once per period.

    `problem` says why the plan is not in force. It is None while the plan is in force.
    """

    def __init__(self, wan: Wan, period_s: float = 1.0) -> None:
        self._wan, self._period_s = wan, period_s
        self._stopping = threading.Event()
        self.problem: str | None = "not applied yet"

    def run(self) -> None:
        while not self._stopping.is_set():
            self._once()
            self._stopping.wait(self._period_s)

    def stop(self) -> None:
        self._stopping.set()

    def _once(self) -> None:
        try:
            changes = self._wan.apply()
        except LabError as error:
            if self.problem is None or self.problem == "not applied yet":
                log.warning("delays not in force: %s", error)
            self.problem = str(error)
            return
        if changes or self.problem is not None:
            log.info("delays in force after %d changes", changes)
        self.problem = None


def serve(keeper: Keeper, health_listen: str) -> None:
    """Runs until SIGTERM or SIGINT.

    Answers /healthz with 200 while the plan is in force, else with 503.
    """
    host, _, port = health_listen.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), _health_handler(keeper))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        keeper.run()
    finally:
        server.shutdown()
        server.server_close()


def _health_handler(keeper: Keeper) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            problem = keeper.problem if self.path == "/healthz" else "only /healthz is served"
            body = (problem or "ok").encode()
            self.send_response(200 if problem is None else 503 if self.path == "/healthz" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: probes are not worth a line each."""

    return Handler
