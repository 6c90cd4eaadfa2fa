"""The process's own telemetry: JSON lines on stderr, counters, state changes said once, GET /healthz
and /metrics."""

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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # They log every attempt with its traceback; Telemetry.up and down say it once.
    for library in ("nats", "clickhouse_driver"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


class Telemetry:
    """Counters and the state of each server, read by /healthz and /metrics and by nobody else."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.servers: dict[str, str] = {}  # name -> "up" or why not
        self.relays: dict[str, dict[str, float]] = {}  # cluster -> relay -> Unix time of its last heartbeat
        self._reasons: set[str] = set()

    def up(self, server: str) -> None:
        if self.servers.get(server) != "up":
            self.servers[server] = "up"
            log.info("%s is there", server)

    def down(self, server: str, error: BaseException | str) -> None:
        if self.servers.get(server) in ("up", None):
            log.warning("%s is away, will be tried again: %s", server, self.describe(error))
        self.servers[server] = self.describe(error)

    def malformed(self, reason: str, subject: str, sequence: int, detail: str) -> None:
        """Counts every malformed message, and shows the first of each reason."""
        self.counters[f"malformed.{reason}"] += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            fields = {"reason": reason, "subject": subject, "sequence": sequence, "detail": detail[:500]}
            log.warning(
                "malformed message terminated; further ones are counted only", extra={"fields": fields}
            )

    def health(self) -> tuple[bool, dict]:
        """Ready means able to publish: NATS is there. Redis and ClickHouse may be away."""
        nats = self.servers.get("nats", "not connected yet")
        document = {"ready": nats == "up", "servers": self.servers, "counters": dict(self.counters)}
        return nats == "up", document if nats == "up" else {"reason": f"nats: {nats}", **document}

    @staticmethod
    def describe(error: BaseException | str) -> str:
        return error if isinstance(error, str) else f"{type(error).__name__}: {str(error)[:300]}"


def serve_health(listen: str, telemetry: Telemetry, exposition: Exposition) -> ThreadingHTTPServer:
    """Answers GET /healthz and /metrics from a thread of its own. Raises OSError when the port cannot be had."""

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
