"""Processes of one benchmark: each is started on a core, waited for, and always stopped."""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path


def on_core(core: int, command: Sequence[str | Path]) -> list[str]:
    """Returns the command, pinned to one core."""
    return ["taskset", "-c", str(core), *map(str, command)]


class Process:
    """A child process on one core. Its log is a file, whose end explains an early exit."""

    def __init__(self, name: str, core: int, command: Sequence[str | Path], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                on_core(core, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_port(self, port: int, seconds: float = 30) -> None:
        """Waits until the port accepts connections. Raises RuntimeError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name}: port {port} is not open after {seconds} s") from None
                time.sleep(0.05)

    def ask(self) -> str:
        """Sends an empty line, and returns the line with which the process answers."""
        print(file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def check(self) -> None:
        """Raises RuntimeError with the end of the log when the process has ended."""
        if self._process.poll() is not None:
            end = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}: {end}")

    def cpu_ns(self) -> int:
        """Returns user and system time of all threads of the process in nanoseconds.

        The value is the scheduler's account. utime and stime of /proc/<pid>/stat are scaled to it,
        but they have ticks of 10 ms.
        """
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total

    def rss_mb(self) -> float:
        """Returns the resident memory of the process in MB."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def http_get(port: int, path: str) -> str:
    """Returns the body of a local HTTP GET."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
        return response.read().decode()
