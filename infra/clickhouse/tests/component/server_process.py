"""The real server as a process of a test: own ports, own secret, own folder, kept over restarts."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

_READY = 60.0  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess:
    """`python -m spillway_clickhouse.server`; `start` returns once it is ready."""

    def __init__(self, folder: Path):
        self.port, self.health_port = free_port(), free_port()
        self.user, self.password = "tester", "p" + secrets.token_hex(8)
        self.log = folder / "server.log"
        self.environment = {
            "SPILLWAY_CLICKHOUSE_USER": self.user,
            "SPILLWAY_CLICKHOUSE_PASSWORD": self.password,
            "SPILLWAY_CLICKHOUSE_LISTEN": f"127.0.0.1:{self.port}",
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{self.health_port}",
            "SPILLWAY_STATE_DIR": str(folder / "state"),
        }
        self.process: subprocess.Popen | None = None

    def url(self, database: str = "", **options: str) -> str:
        query = "&".join(f"{k}={v}" for k, v in options.items())
        return f"clickhouse://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}?{query}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spillway_clickhouse.server"],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _READY
        while self.health() != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"server did not become ready:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def health(self) -> int:
        """Status of GET /healthz, 0 when nobody listens."""
        try:
            url = f"http://127.0.0.1:{self.health_port}/healthz"
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal, waits at most 10 s; the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(how)
        code = self.process.wait(10)
        self.process = None
        return code
