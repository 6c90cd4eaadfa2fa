"""The HotelReservation traces as a small mesh, with expected values.

The expected values are computed without the project's code. Every trace is extended by rule with
what the recording does not contain. `rate` runs in a second cluster for every other trace. Client
spans carry a ruleset version (1 for the lighter three loads, 2 for the heavier three) and body
sizes. Every 50th trace fails at `rate`, and every 97th calls a `profile` that never answers.
"""

import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from spillway_lab.testing import recordings

HOME, AWAY = "home", "away"
WEIGHT = 1 / 0.3  # the recording kept three of ten traces
TRACES_PER_LOAD = 250
FAILING, LOST = 50, 97


@dataclass(frozen=True)
class Call:
    """A request that was served, from a server span. Times are in microseconds."""

    trace: str
    span: str
    service: str
    cluster: str
    start: int
    duration: int
    exclusive: int
    failed: bool
    load: int
    is_entry: bool


@dataclass(frozen=True)
class Made:
    """A call that was made, from a client span. `network` is None when it was not answered."""

    trace: str
    span: str
    source: str
    source_cluster: str
    destination: str
    cluster: str
    start: int
    duration: int
    network: int | None
    failed: bool
    load: int
    version: int
    request_bytes: int
    response_bytes: int


@cache
def traces() -> tuple[tuple[int, dict], ...]:
    """Returns (load, trace) for every load, in Jaeger's format and extended as described above."""
    found = []
    for path in recordings.hotel_reservation():
        load = int(path.name[4:].split(".")[0])
        with gzip.open(path) as file:
            recorded = sorted(json.load(file)["data"], key=lambda t: t["traceID"])
        for number, trace in enumerate(recorded[:TRACES_PER_LOAD]):
            _extend(trace, number, 1 if load <= 75 else 2)
            found.append((load, trace))
    return tuple(found)


def cluster_of(trace: dict, service: str) -> str:
    return AWAY if service == "rate" and int(trace["traceID"], 16) % 2 else HOME


def _extend(trace: dict, number: int, version: int) -> None:
    fails = {"rate", "search", "frontend"} if number % FAILING == 0 else set()
    lost = number % LOST == 5
    if lost:
        trace["spans"] = [
            s for s in trace["spans"] if (_service(trace, s), _kind(s)) != ("profile", "server")
        ]
    for span in trace["spans"]:
        callee = _callee(span)
        if _kind(span) == "client":
            _tag(span, "spillway.ruleset.version", version)
            _tag(span, "spillway.destination.cluster", cluster_of(trace, callee))
            _tag(span, "spillway.destination.service", callee)
            _tag(span, "http.request.body.size", 100 + int(span["spanID"], 16) % 1000)
            _tag(span, "http.response.body.size", 5000 + int(span["spanID"], 16) % 3000)
        at_fault = (
            callee in fails & {"rate", "search"}
            if _kind(span) == "client"
            else _service(trace, span) in fails
        )
        if at_fault or (lost and _kind(span) == "client" and callee == "profile"):
            span["tags"] = [tag for tag in span["tags"] if tag["key"] != "http.status_code"]
            _tag(span, "http.response.status_code", 503)


@cache
def calls() -> tuple[Call, ...]:
    return tuple(_calls())


@cache
def made() -> tuple[Made, ...]:
    return tuple(_made())


def _calls() -> Iterator[Call]:
    for load, trace in traces():
        for span in trace["spans"]:
            if _kind(span) == "server":
                service = _service(trace, span)
                children = [s for s in trace["spans"] if _parent(s) == span["spanID"]]
                yield Call(
                    trace=trace["traceID"].zfill(32), span=span["spanID"].zfill(16), service=service,
                    cluster=cluster_of(trace, service), start=span["startTime"], duration=span["duration"],
                    exclusive=_exclusive(span, children), failed=_failed(span), load=load, is_entry=not _parent(span),
                )  # fmt: skip


def _made() -> Iterator[Made]:
    for load, trace in traces():
        for span in trace["spans"]:
            if _kind(span) != "client":
                continue
            answer = next((s for s in trace["spans"] if _parent(s) == span["spanID"]), None)
            tags = {tag["key"]: tag["value"] for tag in span["tags"]}
            source, destination = _service(trace, span), _callee(span)
            yield Made(
                trace=trace["traceID"].zfill(32), span=span["spanID"].zfill(16), source=source,
                source_cluster=cluster_of(trace, source), destination=destination,
                cluster=cluster_of(trace, destination), start=span["startTime"], duration=span["duration"],
                network=max(span["duration"] - answer["duration"], 0) if answer else None, failed=_failed(span),
                load=load, version=tags["spillway.ruleset.version"],
                request_bytes=tags["http.request.body.size"], response_bytes=tags["http.response.body.size"],
            )  # fmt: skip


def _exclusive(span: dict, children: list[dict]) -> int:
    """Microseconds of the span that no child covers."""
    begin, end = span["startTime"], span["startTime"] + span["duration"]
    free, reached = 0, begin
    for start, stop in sorted((c["startTime"], c["startTime"] + c["duration"]) for c in children):
        free += max(min(start, end) - reached, 0)
        reached = max(reached, min(stop, end))
    return free + end - reached


def _service(trace: dict, span: dict) -> str:
    return trace["processes"][span["processID"]]["serviceName"]


def _kind(span: dict) -> str:
    return next((tag["value"] for tag in span["tags"] if tag["key"] == "span.kind"), "")


def _callee(span: dict) -> str:
    """Returns the called service, for example `rate` for `/rate.Rate/GetRates`."""
    return span["operationName"].strip("/").partition(".")[0]


def _parent(span: dict) -> str:
    return next((ref["spanID"] for ref in span.get("references", []) if ref["refType"] == "CHILD_OF"), "")


def _failed(span: dict) -> bool:
    return any(tag["key"] == "http.response.status_code" and tag["value"] == 503 for tag in span["tags"])


def _tag(span: dict, key: str, value: object) -> None:
    span["tags"].append({"key": key, "value": value})


def recorded(*loads: int) -> dict[str, str]:
    """Returns start and end that enclose all calls of these loads, or of all loads."""
    starts = [c.start for c in calls() if not loads or c.load in loads]
    return {"start": f"{min(starts) // 1_000_000}", "end": f"{max(starts) // 1_000_000 + 1}"}


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def hop_us(made: tuple[Made, ...], calls: tuple[Call, ...]) -> dict[tuple, list[float]]:
    """Returns (version, destination, its cluster) -> network plus exclusive time in microseconds.

    Only calls that were answered and did not fail are included, with one value per call.
    """
    answers = {(c.trace, c.service): c for c in calls}
    found = defaultdict(list)
    for m in made:
        answer = answers.get((m.trace, m.destination))
        if answer and not m.failed and not answer.failed:
            found[m.version, m.destination, m.cluster].append((m.network or 0) + answer.exclusive)
    return found
