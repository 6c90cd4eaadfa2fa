"""The process's own telemetry: JSON log lines, counters, server states, /healthz and /metrics.

Log lines go to stderr. A change of a server's state is logged once.
"""

import json
import logging
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spillway_contracts.metrics import CONTENT_TYPE, Exposition

log = logging.getLogger("spillway.publisher")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging() -> None:
    """Makes the root logger write JSON lines to stderr, from level INFO."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # These libraries log every attempt with its traceback. Telemetry.up and Telemetry.down log each
    # change of state once.
    for library in ("nats", "clickhouse_driver"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


class Telemetry:
    """Counters and the state of each server. Only /healthz and /metrics read them."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.servers: dict[str, str] = {}  # name -> "up", or why it is not
        # cluster -> relay -> Unix time of its last heartbeat
        self.relays: dict[str, dict[str, float]] = {}
        self._reasons: set[str] = set()

    def up(self, server: str) -> None:
        """Notes that the server answers. Logs it when the state changes."""
        if self.servers.get(server) != "up":
            self.servers[server] = "up"
            log.info("%s is there", server)

    def down(self, server: str, error: BaseException | str) -> None:
        """Notes why the server does not answer.

        Logs it when the server was up or never tried before.
        """
        if self.servers.get(server) in ("up", None):
            log.warning("%s is away, will be tried again: %s", server, self.describe(error))
        self.servers[server] = self.describe(error)

    def malformed(self, reason: str, subject: str, sequence: int, detail: str) -> None:
        """Counts a malformed message, and logs the first one of each reason."""
        self.counters[f"malformed.{reason}"] += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            fields = {"reason": reason, "subject": subject, "sequence": sequence, "detail": detail[:500]}
            log.warning(
                "malformed message terminated; further ones are counted only", extra={"fields": fields}
            )

    def health(self) -> tuple[bool, dict]:
        """Returns readiness and the body of /healthz.

        Ready means able to publish, for which NATS must be up. Redis and ClickHouse may be away.
        """
        nats = self.servers.get("nats", "not connected yet")
        document = {"ready": nats == "up", "servers": self.servers, "counters": dict(self.counters)}
        return nats == "up", document if nats == "up" else {"reason": f"nats: {nats}", **document}

    @staticmethod
    def describe(error: BaseException | str) -> str:
        """Returns one line: the error's type and at most 300 characters of its text."""
        return error if isinstance(error, str) else f"{type(error).__name__}: {str(error)[:300]}"


def serve_health(listen: str, telemetry: Telemetry, exposition: Exposition) -> ThreadingHTTPServer:
    """Serves GET /healthz and /metrics from a separate thread.

    Raises OSError when the port cannot be bound.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE, exposition.text())
                return
            ready, document = telemetry.health()
            known = self.path == "/healthz"
            body = json.dumps(
                document if known else {"reason": f"{self.path}: only /healthz and /metrics are served"}
            ).encode()
            self._answer((200 if ready else 503) if known else 404, "application/json", body)

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments) -> None:
            pass

    host, _, port = listen.rpartition(":")
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
