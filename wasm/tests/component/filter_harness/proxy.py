"""A real Envoy with an outbound and an inbound listener, as two pods have them.

test -> outbound (service front, cluster west)
     -> inbound (service cart, cluster east) -> application
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import yaml
from spillway_lab.testing import proc
from spillway_lab.testing.servers import free_port

from filter_harness.bootstrap import CLASS, ROOT, WASM, Setup, bootstrap

__all__ = ["CLASS", "ENVOY", "ROOT", "WASM", "Proxy", "Setup", "free_ports"]

ENVOY = Path(sys.executable).parent / "envoy"


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def claim(port: int) -> socket.socket:
    """Reserves the port for one Envoy while the returned socket lives.

    Otherwise the listeners of two Envoys could bind the same port and share its connections. The
    socket does not listen, so it takes no connections itself.
    """
    holder = socket.socket()
    holder.bind(("127.0.0.1", port))
    # Set only after bind: with it set before, this bind would succeed beside another Envoy's.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return holder


class Proxy:
    """Starts Envoy and waits until it serves."""

    def __init__(self, folder: Path, app: int, collector: int, setup: Setup | dict | None = None) -> None:
        self.setup = setup if isinstance(setup, Setup) else Setup(overrides=setup or {})
        self.admin, self.inbound, self.outbound = free_ports(3)
        self._claims = [claim(port) for port in (self.inbound, self.outbound)]
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
        """Replaces the file of listeners by a rename, because Envoy's file watch reacts to that."""
        body = {"version_info": str(time.monotonic_ns()), "resources": listeners}
        new = self.setup.listeners.with_suffix(".new")
        new.write_text(json.dumps(body))
        new.rename(self.setup.listeners)

    def stats(self) -> dict[str, int]:
        """Returns the filter's own stats, without their prefix."""
        text = self._get("/stats?filter=wasmcustom")
        pairs = (line.rsplit(": ", 1) for line in text.splitlines() if ": " in line)
        return {name.removeprefix("wasmcustom.spillway_"): int(value) for name, value in pairs}

    def metrics(self) -> set[str]:
        """Returns the filter's lines that Prometheus would scrape: `name{label="value"} number`."""
        lines = self._get("/stats/prometheus").splitlines()
        return {line for line in lines if line.startswith("spillway_")}

    def wait_stats(self, wanted: Callable[[dict[str, int]], bool], seconds: float = 30) -> dict[str, int]:
        """Returns the filter's stats once they satisfy `wanted`.

        The filter updates its stats on ticks, so a reader may see only a part of an update.
        """
        deadline = time.monotonic() + seconds
        while not wanted(stats := self.stats()):
            assert time.monotonic() < deadline, f"not so after {seconds} s: {stats}"
            time.sleep(0.05)
        return stats

    def wait_stat(self, name: str, wanted: Callable[[int], bool], seconds: float = 30) -> int:
        """Returns one of the filter's stats, once it satisfies `wanted`."""
        return self.wait_stats(lambda stats: wanted(stats.get(name, 0)), seconds).get(name, 0)

    def wait_idle(self, seconds: float = 30) -> None:
        """Waits until Envoy reports no active request: the filter has then finished all of them."""
        deadline = time.monotonic() + seconds
        while any(active := self._active().values()):
            assert time.monotonic() < deadline, f"still under way after {seconds} s: {active}"
            time.sleep(0.05)

    def _active(self) -> dict[str, int]:
        """Returns the number of active requests by connection manager."""
        lines = self._get("/stats?filter=downstream_rq_active").splitlines()
        pairs = (line.rsplit(": ", 1) for line in lines if line.startswith("http."))
        active = {name: int(value) for name, value in pairs if not name.startswith("http.admin")}
        assert len(active) == 2, active
        return active

    def rss_kb(self) -> int:
        """Returns Envoy's resident memory in kB."""
        return round(proc.memory_mb(self._process.pid, "VmRSS") * 1024)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for holder in self._claims:
            holder.close()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=20) as response:
            return response.read().decode()

    def _listening(self) -> bool:
        for port in (self.inbound, self.outbound):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
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
