"""Drives Envoys in turn: one with the filter, one without, and optionally one with another build.

Compares the number of spans with the number of requests.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import yaml
from filter_harness.proxy import claim, free_ports
from spillway_contracts.names import FILTER_STAT_SPANS_SENT

from filter_bench import client, envoys
from filter_bench.processes import Process, http_get
from filter_bench.summary import BASELINE, FILTERED, PLAIN, Sample

ENVOY = Path(sys.executable).parent / "envoy"
VEGETA = envoys.ROOT / ".spillway/bin/vegeta"
DIRECTIONS = ("inbound", "outbound")
PROXY_CORE, LOAD_CORE = 1, 0


class Variant:
    """One Envoy under test. `wasm` is its build of the filter, `None` without one."""

    def __init__(
        self, name: str, wasm: Path | None, upstream: int, sink: int, folder: Path, stack: ExitStack
    ) -> None:
        self.name = name
        self.filtered = wasm is not None
        self.admin, inbound, outbound = free_ports(3)
        ports = {"ADMIN": self.admin, "INBOUND": inbound, "OUTBOUND": outbound}
        ports = {f"ENVOY_{name}": port for name, port in ports.items()} | {"APP": upstream, "COLLECTOR": sink}
        values = {f"{name}_PORT": str(port) for name, port in ports.items()}
        values |= {f"{name}_HOST": "127.0.0.1" for name in ports}
        values |= {"SPILLWAY_FILTER_WASM": str(wasm), "SPILLWAY_CLUSTER": "west", "SPILLWAY_POD": "cart-1"}
        # requests carry the trace by which their spans are counted
        values["SPILLWAY_EDGE"] = "false"
        values["SPILLWAY_SAMPLE_RATIO"] = "1"
        values["SPILLWAY_SERVICE"] = envoys.SERVICE
        for port in (inbound, outbound):
            stack.enter_context(claim(port))
        bootstrap = envoys.pod(values, upstream)
        if name == PLAIN or (name == BASELINE and not accepted(bootstrap, folder)):
            envoys.change_filter(bootstrap, keep=self.filtered)
        self.process = start_envoy(name, PROXY_CORE, bootstrap, folder)
        stack.callback(self.process.stop)
        self.targets = {}
        for direction, port in zip(DIRECTIONS, (inbound, outbound), strict=True):
            self.process.wait_port(port)
            self.targets[direction] = folder / f"{self.name}-{direction}.targets"
            self.targets[direction].write_text(client.targets(port, direction))

    def run(self, number: int, direction: str, rate: int, seconds: float) -> tuple[Sample, int]:
        """Runs one load. Returns the sample and the number of requests.

        Raises RuntimeError when a request failed or Envoy has ended.
        """
        before, began = self.process.cpu_ns(), time.monotonic_ns()
        report = client.attack(VEGETA, LOAD_CORE, self.targets[direction], rate, seconds)
        used, took = self.process.cpu_ns() - before, time.monotonic_ns() - began
        self.process.check()
        if report.failed:
            raise RuntimeError(
                f"{self.name} {direction} at {rate}: {report.failed} of {report.requests} failed"
            )
        sample = Sample(
            round=number, direction=direction, rate=rate, variant=self.name, answered=report.rate,
            p50_ms=report.p50_ms, p99_ms=report.p99_ms, cpu_us=used / report.requests / 1e3, busy=used / took,
        )  # fmt: skip
        return sample, report.requests

    def stat(self, name: str) -> int:
        """Returns one of the filter's own stats."""
        name = f"wasmcustom.{name}"
        lines = http_get(self.admin, f"/stats?filter={name}").splitlines()
        [value] = [line.rsplit(":", 1)[1] for line in lines if line.startswith(name + ":")]
        return int(value)


def accepted(bootstrap: dict, folder: Path) -> bool:
    """Returns whether Envoy would start from this bootstrap.

    An older build refuses settings that it does not know.
    """
    path = folder / "tried.yaml"
    path.write_text(yaml.safe_dump(bootstrap))
    command = [ENVOY, "--mode", "validate", "-l", "critical", "-c", path]
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def start_envoy(name: str, core: int, bootstrap: dict, folder: Path) -> Process:
    """Starts an Envoy with one worker on the given core."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(bootstrap))
    command = [ENVOY, "--disable-hot-restart", "--concurrency", "1", "-l", "warning", "-c", path]
    return Process(name, core, command, folder)


class Bench:
    """The processes of the benchmark, and the number of traced requests, to compare with spans."""

    def __init__(self, wasm: Path, baseline: Path | None, folder: Path, stack: ExitStack) -> None:
        upstream, admin, sink_port = free_ports(3)
        app = start_envoy("application", LOAD_CORE, envoys.application(upstream, admin), folder)
        stack.callback(app.stop)
        self.sink = Process(
            "sink", LOAD_CORE, [sys.executable, Path(__file__).with_name("sink.py"), sink_port], folder
        )
        stack.callback(self.sink.stop)
        app.wait_port(upstream)
        self.sink.wait_port(sink_port)
        builds = {PLAIN: None, FILTERED: wasm}
        if baseline is not None:
            builds = {PLAIN: None, BASELINE: baseline, FILTERED: wasm}
        self.variants = [
            Variant(name, build, upstream, sink_port, folder, stack) for name, build in builds.items()
        ]
        self.traced = 0

    def run(self, number: int, direction: str, rate: int, seconds: float) -> list[Sample]:
        samples = []
        # Odd rounds reverse the order, so that a drift of the machine favours no variant.
        for variant in self.variants[:: 1 if number % 2 == 0 else -1]:
            sample, requests = variant.run(number, direction, rate, seconds)
            samples.append(sample)
            if variant.filtered:
                self.traced += requests
                self.settle()
        return samples

    def settle(self) -> None:
        """Waits until the collector has exactly one span of every request so far.

        The filter's stats must agree. Raises RuntimeError when there are more spans, or after 30 s.
        """
        deadline = time.monotonic() + 30
        while (spans := int(self.sink.ask())) != self.traced or self.stat(FILTER_STAT_SPANS_SENT) != spans:
            if spans > self.traced or time.monotonic() > deadline:
                raise RuntimeError(f"the collector has {spans} spans of {self.traced} requests")
            time.sleep(0.1)

    def stat(self, name: str) -> int:
        """Returns one of the filter's own stats, summed over its builds."""
        return sum(variant.stat(name) for variant in self.variants if variant.filtered)

    def rss_mb(self) -> dict[str, float]:
        """Returns the resident memory of each variant's Envoy in MB."""
        return {variant.name: round(variant.process.rss_mb(), 1) for variant in self.variants}
