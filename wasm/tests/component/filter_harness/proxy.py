"""A real Envoy with an outbound and an inbound listener, as two pods would have them:

test -> outbound (service front, cluster west) -> inbound (service cart, cluster east) -> application
"""

import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from filter_harness.bootstrap import CLASS, ROOT, WASM, Setup, bootstrap

__all__ = ["CLASS", "ENVOY", "ROOT", "WASM", "Proxy", "Setup", "free_ports"]

ENVOY = Path(sys.executable).parent / "envoy"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the kernel gives to clients: a busy machine's
    connections would take them before Envoy does."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


class Proxy:
    """Starts Envoy and waits until it serves."""

    def __init__(self, folder: Path, app: int, collector: int, setup: Setup | dict | None = None) -> None:
        self.setup = setup if isinstance(setup, Setup) else Setup(overrides=setup or {})
        self.admin, self.inbound, self.outbound = free_ports(3)
        config, listeners = bootstrap(self.setup, self.admin, self.inbound, self.outbound, app, collector)
        if self.setup.listeners is not None:
            self.write_listeners(listeners)
        path = folder / f"envoy-{self.admin}.yaml"
        path.write_text(yaml.safe_dump(config))
        self.log = folder / f"envoy-{self.admin}.log"
        command = [
            ENVOY,
            "--disable-hot-restart",
            "--concurrency",
            str(self.setup.concurrency),
            "-l",
            "warning",
        ]
        command += ["--drain-time-s", "1", "-c", path]
        self._process = subprocess.Popen(command, stderr=self.log.open("wb"), stdout=subprocess.DEVNULL)
        self._wait_ready()

    def write_listeners(self, listeners: list[dict]) -> None:
        """Replaces the file of listeners at once, as Envoy's file watch wants it."""
        body = {"version_info": str(time.monotonic_ns()), "resources": listeners}
        new = self.setup.listeners.with_suffix(".new")
        new.write_text(json.dumps(body))
        new.rename(self.setup.listeners)

    def stats(self) -> dict[str, int]:
        """The filter's own stats."""
        text = self._get("/stats?filter=wasmcustom")
        pairs = (line.rsplit(": ", 1) for line in text.splitlines() if ": " in line)
        return {name.removeprefix("wasmcustom.spillway_"): int(value) for name, value in pairs}

    def metrics(self) -> set[str]:
        """What Prometheus would scrape of the filter: `name{label="value"} number`."""
        lines = self._get("/stats/prometheus").splitlines()
        return {line for line in lines if line.startswith("spillway_")}

    def wait_stat(self, name: str, wanted, seconds: float = 8) -> int:
        deadline = time.monotonic() + seconds
        while not wanted(value := self.stats().get(name, 0)):
            assert time.monotonic() < deadline, f"{name} is {value}; {self.stats()}"
            time.sleep(0.05)
        return value

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=5) as response:
            return response.read().decode()

    def _listening(self) -> bool:
        for port in (self.inbound, self.outbound):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def _wait_ready(self) -> None:
        for _ in range(300):
            if self._process.poll() is not None:
                break
            try:
                if self._get("/ready").strip() == "LIVE" and self._listening():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"Envoy is not ready: {self.log.read_text()[-2000:]}")
