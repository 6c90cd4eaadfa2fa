"""The load: vegeta over persistent connections, at a constant rate or as fast as possible."""

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from filter_bench.envoys import CALLEES, SERVICE
from filter_bench.processes import on_core

TARGETS = 500
"""Different requests, used in turn."""
CONNECTIONS = 32


@dataclass(frozen=True)
class Report:
    """Figures of one load, as vegeta reports them."""

    requests: int
    failed: int
    rate: float
    """Answers per second."""
    p50_ms: float
    p99_ms: float


def targets(port: int, direction: str) -> str:
    """Returns requests of every class in vegeta's format, each with a sampled trace of its own."""
    draw = random.Random(port)
    out = []
    for number in range(TARGETS):
        method, path = draw.choice(
            [("GET", f"/users/{number}"), ("GET", f"/users/{number}/orders"), ("POST", "/checkout"),
             ("GET", f"/users/{number}/orders/{number % 7}?page=2"), ("GET", f"/static/{number}.js")]
        )  # fmt: skip
        headers = {
            "Host": SERVICE if direction == "inbound" else draw.choice(CALLEES),
            "user-agent": "checkout/2.4.1 (linux; amd64)",
            "accept": "application/json",
            "content-type": "application/json",
            "x-request-id": f"{draw.getrandbits(128):032x}",
            "authorization": "Bearer " + "t" * 120,
            "traceparent": f"00-{draw.getrandbits(127) + 1:032x}-{draw.getrandbits(63) + 1:016x}-01",
        }
        if direction == "inbound":
            headers |= {"x-spillway-source-cluster": "west", "x-spillway-source-service": "front"}
        lines = [f"{method} http://127.0.0.1:{port}{path}", *(f"{k}: {v}" for k, v in headers.items())]
        out.append("\n".join(lines))
    return "\n\n".join(out) + "\n"


def attack(vegeta: Path, core: int, file: Path, rate: int, seconds: float) -> Report:
    """Sends `rate` requests per second for `seconds`, with vegeta on the given core.

    With rate 0, every connection sends its next request as soon as the previous one is answered.
    """
    command = [
        vegeta,
        "attack",
        "-targets",
        file,
        "-rate",
        rate,
        "-duration",
        f"{seconds}s",
        "-timeout",
        "5s",
    ]
    command += [
        "-workers",
        CONNECTIONS,
        "-max-workers",
        CONNECTIONS if rate == 0 else 256,
        "-connections",
        256,
    ]
    made = subprocess.Popen(on_core(core, command), stdout=subprocess.PIPE)
    done = subprocess.run(
        on_core(core, [vegeta, "report", "-type", "json"]), stdin=made.stdout, capture_output=True, check=True
    )
    made.stdout.close()
    if made.wait() != 0:
        raise RuntimeError(f"vegeta ended with {made.returncode}")
    report = json.loads(done.stdout)
    latencies = report["latencies"]
    return Report(
        requests=report["requests"],
        failed=report["requests"] - report["status_codes"].get("200", 0),
        rate=report["throughput"],
        p50_ms=latencies["50th"] / 1e6,
        p99_ms=latencies["99th"] / 1e6,
    )
