"""Writes scenarios with the character of the L3 paper's unpublished traces (section 5.1).

Every ten seconds each cluster gets a new median, a new p99 and, in the failure scenarios, a new
success rate. All follow a mean-reverting walk whose ranges are those that the paper's text gives. A
median is a speed of the service. A p99 is a delay of 1.5 % of the answers. What the text does not
have (the medians of scenarios 3 and 4, the p99s of scenarios 3 to 5) is chosen by its words "stable
median, irregular peaks". The live ones have 80 seconds, one pod of the service in each cluster, and
as many requests per second as two cores can send through real Envoys beside the whole pipeline.

Usage: python lab/generators/l3.py [--check]
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
CLUSTERS = ("frankfurt", "paris", "milan")
MEASURED_S, STEP_S, WARM_UP_S = 600, 10, 60
LIVE_S, LIVE_WARM_UP_S = 80, 15
BASE_P50_MS = 10.0  # of the application's service at speed 1
TAIL_SHARE = 0.015  # of the answers that are delayed


@dataclass(frozen=True)
class Walk:
    """Values between two bounds, evenly distributed on a logarithmic scale.

    `minutes`: how long a value lasts before it is forgotten. `peak`: bounds that replace these for
    a tenth of the time, twice, in the cluster `where`.
    """

    low: float
    high: float
    minutes: float = 1.0
    peak: tuple[float, float] | None = None
    where: str = ""


@dataclass(frozen=True)
class Trace:
    """One scenario: its walks in milliseconds, requests per second, and failures."""

    name: str
    seed: int
    about: str
    p50_ms: Walk
    p99_ms: Walk
    rps: Walk
    dips: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)  # (from s, to s, success)
    success: Walk | None = None
    pods: int = 3
    measured_s: int = MEASURED_S
    warm_up_s: int = WARM_UP_S
    policies: str = "l3, round-robin, c3, l3-peak, local, spillway"
    profile: str = ""


TRACES = (
    Trace(
        "l3-scenario-1", 1,
        "medians of 50 to 100 ms with peaks to 350 ms in one cluster, p99s of 100 to 950 ms, 300 requests/s",
        Walk(50, 100, peak=(250, 350), where="paris"), Walk(100, 950), Walk(280, 320),
    ),
    Trace(
        "l3-scenario-2", 2,
        "medians of 3 to 9 ms, p99s of 10 to 2400 ms, 45 to 200 requests/s",
        Walk(3, 9), Walk(10, 2400), Walk(45, 200),
    ),
    Trace(
        "l3-scenario-3", 3,
        "a stable median with irregular peaks of p99",
        Walk(18, 22, 3), Walk(60, 400, 0.5), Walk(90, 110),
    ),
    Trace(
        "l3-scenario-4", 4,
        "a stable median and the p99s that fluctuate most",
        Walk(18, 22, 3), Walk(50, 1500, 0.5), Walk(90, 110),
    ),
    Trace(
        "l3-scenario-5", 5,
        "a stable median (the paper: a standard deviation of 6.3 ms) with irregular peaks of p99",
        Walk(25, 47, 1), Walk(100, 250, 0.5), Walk(90, 110),
    ),
    Trace(
        "l3-failure-1", 1,
        "scenario 1, with drops of the success rate of single clusters down to 30 %, 91 % on average",
        Walk(50, 100, peak=(250, 350), where="paris"), Walk(100, 950), Walk(280, 320),
        dips={
            "frankfurt": [(60, 120, 0.6), (420, 450, 0.3)],
            "paris": [(150, 240, 0.5), (500, 540, 0.6)],
            "milan": [(270, 330, 0.3), (360, 380, 0.6)],
        },
    ),
    Trace(
        "l3-failure-2", 2,
        "scenario 2, with a success rate below 100 % nearly always, 98.5 % on average",
        Walk(3, 9), Walk(10, 2400), Walk(45, 200), success=Walk(0.002, 0.05, 0.5),
    ),
)  # fmt: skip
_PROFILE = """\
  # Spillway needs curves, which these loads give it.
  profile:
    - {seconds: 5, rps: {frankfurt: 8}}
    - {seconds: 5, rps: {frankfurt: 16}}
    - {seconds: 5, rps: {frankfurt: 24}}
    - {seconds: 5, rps: {frankfurt: 32}}
"""


def live(trace: Trace, factor: float, dips: dict[str, list[tuple[int, int, float]]] | None = None) -> Trace:
    """Returns the trace for a live run: `factor` times the requests, and dips of its own."""
    rps = replace(trace.rps, low=factor * trace.rps.low, high=factor * trace.rps.high)
    return replace(
        trace, name=f"{trace.name}-live", rps=rps, dips=dips or {}, measured_s=LIVE_S, warm_up_s=LIVE_WARM_UP_S,
        about=f"{trace.about}; {factor:.2g} times the requests", policies="l3, round-robin, c3, local, spillway",
        profile=_PROFILE, pods=1,
    )  # fmt: skip


_BY_NAME = {trace.name: trace for trace in TRACES}
LIVE = (
    live(_BY_NAME["l3-scenario-2"], 0.15),
    live(_BY_NAME["l3-scenario-4"], 0.15),
    live(
        _BY_NAME["l3-failure-1"], 0.05,
        {"frankfurt": [(10, 20, 0.6), (60, 70, 0.3)], "paris": [(30, 40, 0.5)], "milan": [(50, 60, 0.6)]},
    ),
)  # fmt: skip


def values(walk: Walk, random: np.random.Generator, seconds: int, cluster: str = "") -> np.ndarray:
    """Returns one value for each step."""
    steps, kept = seconds // STEP_S, math.exp(-STEP_S / (60 * walk.minutes))
    at = np.empty(steps)
    at[0] = random.normal()
    for step in range(1, steps):
        at[step] = kept * at[step - 1] + math.sqrt(1 - kept**2) * random.normal()
    share = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in at])
    found = walk.low * (walk.high / walk.low) ** share
    if walk.peak and cluster == walk.where:
        for begin in (steps // 4, 2 * steps // 3):
            those = slice(begin, begin + max(steps // 10, 1))
            found[those] = walk.peak[0] * (walk.peak[1] / walk.peak[0]) ** share[those]
    return found


def text(trace: Trace) -> str:
    """Returns the scenario file."""
    random = np.random.default_rng(trace.seed)
    rps = values(trace.rps, random, trace.measured_s)
    events = sorted(line for cluster in CLUSTERS for line in _events(trace, cluster, random))
    phases = [
        f"      - {{seconds: {STEP_S}, rps: {{{CLUSTERS[0]}: {a:.1f}}}, to_rps: {{{CLUSTERS[0]}: {b:.1f}}}}}"
        for a, b in zip(rps, [*rps[1:], rps[-1]], strict=True)
    ]
    head = _HEAD.format(about=trace.about, pods=trace.pods, profile=trace.profile, warm_up=trace.warm_up_s)
    tail = _TAIL.format(policies=trace.policies)
    return head + "\n".join([*phases, "", "events:", *(line for _, line in events), "", tail])


def _events(trace: Trace, cluster: str, random: np.random.Generator) -> Iterator[tuple[int, str]]:
    seconds = trace.measured_s
    p50s, p99s = values(trace.p50_ms, random, seconds, cluster), values(trace.p99_ms, random, seconds)
    failed = values(trace.success, random, seconds) if trace.success else np.zeros(len(p50s))
    for step, (p50, p99) in enumerate(zip(p50s, p99s, strict=True)):
        second = step * STEP_S
        error_rate = failed[step]
        for begin, end, success in trace.dips.get(cluster, []):
            error_rate = 1 - success if begin <= second < end else error_rate
        keys = {
            "service": "api",
            "cluster": cluster,
            "speed": f"{BASE_P50_MS / p50:.3f}",
            "delay_ms": f"{max(p99 - p50, 0):.0f}",
            "delay_share": TAIL_SHARE,
        } | ({"error_rate": f"{error_rate:.3f}"} if trace.dips or trace.success else {})
        listed = ", ".join(f"{key}: {value}" for key, value in keys.items())
        yield second, f"  - {{at_seconds: {second}, service: {{{listed}}}}}"


_HEAD = """\
# Written by lab/generators/l3.py, which says where its numbers are from.
question: >-
  Clusters answer slower and faster for reasons that load does not explain ({about}): how much of the tail do
  policies avoid that know only what callers see?
application: ../applications/api.yaml

clusters:
  frankfurt: {{region: eu-central-1}}
  paris: {{region: eu-west-3}}
  milan: {{region: eu-south-1}}

# About 10 ms from the first cluster to each other one (section 5.1). The users are in the first.
rtt_ms:
  frankfurt: {{paris: 10, milan: 10}}
  paris: {{milan: 20}}
egress_usd_per_gb: 0.02

placement:
  gateway: {{frankfurt: {{}}}}
  api: {{frankfurt: {{pods: {pods}}}, paris: {{pods: {pods}}}, milan: {{pods: {pods}}}}}

usd_per_ms_per_million_requests: 0.1

requests:
  - {{service: gateway, method: GET, path: "/api/{{id}}", request_bytes: 256, share: 1}}

load:
{profile}  measure:
    warm_up_seconds: {warm_up}
    phases:
"""
_TAIL = """\
policies: [{policies}]
repetitions: 3
"""


def main() -> int:
    check, stale = "--check" in sys.argv[1:], []
    for trace in (*TRACES, *LIVE):
        path = SCENARIOS / f"{trace.name}.yaml"
        if not check:
            path.write_text(text(trace))
        elif not path.exists() or path.read_text() != text(trace):
            stale.append(path)
    for path in stale:
        print(f"{path}: is not what lab/generators/l3.py writes")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
