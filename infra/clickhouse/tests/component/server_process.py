"""The real server as a child process of a test.

It has its own ports, password and folder, which stay the same when it restarts.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import STOP_S, eventually


class ServerProcess:
    """Runs `python -m spillway_clickhouse.server`. `start` returns once the server is ready."""

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
        """Returns the URL of the native protocol, with user and password."""
        query = "&".join(f"{k}={v}" for k, v in options.items())
        return f"clickhouse://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}?{query}"

    def start(self) -> None:
        self.launch()
        eventually(self._ready, "the server is ready", seen=self._tail)

    def launch(self) -> None:
        """Starts the process, and does not wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spillway_clickhouse.server"],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
            )

    def _ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self._tail()
        return self.health() == 200

    def _tail(self) -> str:
        return self.log.read_text()[-2000:]

    def health(self) -> int:
        """Returns the status of GET /readyz, or 0 when nothing listens."""
        try:
            url = f"http://127.0.0.1:{self.health_port}/readyz"
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and waits until the process has ended. Returns its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(how)
        code = self.process.wait(STOP_S)
        self.process = None
        return code
