"""Writes golden/1_spans.json: the first link of the golden chain, OTLP/JSON as the filter makes it.

A gateway -> frontend -> backend application in two clusters, one kept trace per second and cluster.
Each stands for all arrivals of its second (sampling threshold in tracestate), and its exclusive
times are those of the curve a / (1 - u) + b at the mean rate of the five seconds around it, so that
what the later links measure has a known answer: A_MS, B_MS, CAPACITY_RPS, RTT_MS.

Usage: python contracts/generate/golden_spans.py [--check]
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "golden" / "1_spans.json"
START_S = 1_767_225_616  # 2026-01-01 00:00:16
SECONDS = 14
RATES = {"west": (50, 440), "east": (60, 280)}  # arrivals per second, first and last
SERVICES = ("gateway", "frontend", "backend")
A_MS = {"gateway": 0.5, "frontend": 1.5, "backend": 4.0}
B_MS = {"gateway": 1.0, "frontend": 3.0, "backend": 6.0}
CAPACITY_RPS = {"gateway": 600, "frontend": 550, "backend": 500}
RTT_MS = {True: 0.4, False: 25.0}  # same cluster or not
# In these traces the frontend calls the backend of the other cluster
CROSSING = {("west", 3), ("west", 8), ("east", 5)}
FAILED = {("west", 10)}  # in this trace the backend answers 503 at once
REQUEST_BYTES = {"gateway": 300, "frontend": 420, "backend": 510}
RESPONSE_BYTES = {"gateway": 14_000, "frontend": 12_000, "backend": 48_000}
RULESET = 7


def rate(cluster: str, second: int) -> float:
    """Returns the arrivals per second of the cluster in this second."""
    first, last = RATES[cluster]
    return first + (last - first) * second / (SECONDS - 1)


def utilisation(cluster: str, service: str, second: int) -> float:
    """Returns the service's utilisation at the mean rate of the five seconds around this one."""
    around = range(max(second - 2, 0), min(second + 2, SECONDS - 1) + 1)
    return sum(rate(cluster, s) for s in around) / len(around) / CAPACITY_RPS[service]


def identifier(*parts: object, size: int) -> str:
    """Returns `size` bytes in hex, which depend only on the parts."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[: 2 * size]


def threshold(count: float) -> str:
    """Returns the sampling threshold in tracestate for one kept of `count` traces."""
    return f"{round((1 - 1 / count) * (1 << 56)):014x}".rstrip("0") or "0"


def attribute(key: str, value: str | int | float) -> dict:
    """Returns an OTLP/JSON attribute."""
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"doubleValue": value}}


class Trace:
    """The spans of one request, from the innermost to the outermost."""

    def __init__(self, cluster: str, second: int) -> None:
        self.cluster, self.second = cluster, second
        self.trace_id = identifier(cluster, second, size=16)
        self.state = f"ot=th:{threshold(rate(cluster, second))}"
        self.spans: list[tuple[str, str, dict]] = []

    def serve(
        self, depth: int, cluster: str, caller: tuple[str, str] | None, parent: str, start_us: int
    ) -> int:
        """Adds the inbound span of SERVICES[depth] and everything below it.

        Returns its duration in µs.
        """
        service = SERVICES[depth]
        failed = depth == 2 and (self.cluster, self.second) in FAILED
        u = utilisation(cluster, service, self.second)
        own_us = 200 if failed else round(1000 * (A_MS[service] / (1 - u) + B_MS[service]))
        span_id = identifier(self.trace_id, service, "in", size=8)
        nested_us = 0
        if depth + 1 < len(SERVICES):
            nested_us = self.call(depth, cluster, span_id, start_us + own_us // 2)
        attributes = {
            "spillway.direction": "inbound",
            "spillway.load.in_flight": 1 + round(u / (1 - u)),
            "spillway.load.arrival_rate": round(rate(cluster, self.second), 3),
        }
        if caller:
            attributes |= {"spillway.source.cluster": caller[0], "spillway.source.service": caller[1]}
        self.add(
            cluster, service, span_id, parent, 2, depth, start_us, own_us + nested_us, failed, attributes
        )
        return own_us + nested_us

    def call(self, depth: int, cluster: str, parent: str, start_us: int) -> int:
        """Adds the outbound span of a call to SERVICES[depth + 1]. Returns its duration in µs."""
        there = cluster
        if depth == 1 and (self.cluster, self.second) in CROSSING:
            [there] = [name for name in RATES if name != cluster]
        network_us = round(1000 * RTT_MS[there == cluster])
        service, callee = SERVICES[depth], SERVICES[depth + 1]
        span_id = identifier(self.trace_id, service, "out", size=8)
        served_us = self.serve(depth + 1, there, (cluster, service), span_id, start_us + network_us // 2)
        attributes = {
            "spillway.direction": "outbound",
            "spillway.destination.cluster": there,
            "spillway.destination.service": callee,
            "spillway.network.time_us": network_us,
            "spillway.service.time_us": served_us,
            "spillway.ruleset.version": RULESET,
        }
        failed = depth == 1 and (self.cluster, self.second) in FAILED
        self.add(
            cluster,
            service,
            span_id,
            parent,
            3,
            depth + 1,
            start_us,
            served_us + network_us,
            failed,
            attributes,
        )
        return served_us + network_us

    def add(
        self,
        cluster: str,
        service: str,
        span_id: str,
        parent: str,
        kind: int,
        called: int,
        start_us: int,
        duration_us: int,
        failed: bool,
        attributes: dict,
    ) -> None:
        """Adds one span. `called`: index in SERVICES of the service that is called."""
        name = SERVICES[called]
        common = {
            "spillway.class": f"{name} GET /items/{{id}}",
            "http.request.method": "GET",
            "http.response.status_code": 503 if failed else 200,
            "url.path": f"/items/{self.second}",
            "server.address": name,
            "http.request.body.size": REQUEST_BYTES[name],
            "http.response.body.size": RESPONSE_BYTES[name],
        }
        span = {
            "traceId": self.trace_id,
            "spanId": span_id,
            "traceState": self.state,
            "parentSpanId": parent,
            "name": "GET",
            "kind": kind,
            "startTimeUnixNano": str(start_us * 1000),
            "endTimeUnixNano": str((start_us + duration_us) * 1000),
            "attributes": [attribute(k, v) for k, v in (common | attributes).items()],
            "status": {"code": 2} if failed else {},
        }
        self.spans.append((cluster, service, span))


def document() -> dict:
    """Returns the OTLP/JSON document of all spans."""
    resources: dict[tuple[str, str], list[dict]] = {}
    for second in range(SECONDS):
        for cluster in sorted(RATES):
            trace = Trace(cluster, second)
            trace.serve(0, cluster, None, "", (START_S + second) * 1_000_000 + 100_000)
            for where, service, span in trace.spans:
                resources.setdefault((where, service), []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [attribute("service.name", service), attribute("spillway.cluster", cluster)]
                },
                "scopeSpans": [{"spans": spans}],
            }
            for (cluster, service), spans in sorted(resources.items())
        ]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is stale")
    check = parser.parse_args().check
    # One span per line, so that a diff shows the changed spans.
    text = json.dumps(document()).replace('{"traceId"', '\n{"traceId"') + "\n"
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{'stale' if check else 'wrote'}: {TARGET.relative_to(TARGET.parents[2])}", file=sys.stderr)
    if not check:
        TARGET.write_text(text)
    return 1 if check else 0


if __name__ == "__main__":
    sys.exit(main())
