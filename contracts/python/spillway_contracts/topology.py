"""Reads topology files: YAML with the JSON names of spillway.v1.Topology."""

import math
from pathlib import Path
from typing import TypeVar

import yaml
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from spillway.v1.topology_pb2 import Autoscaler, Service, Timeouts, Topology

from spillway_contracts import ContractError

T = TypeVar("T")
LOAD_REPORTS = ("", "orca")
REPLAYS = ("", "never", "idempotent", "any")
CHECKS = ("", "http1", "http2", "off")
TIMEOUTS = ("request", "idle", "per_try")
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S = 0.001, 86_400


def load(path: Path) -> Topology:
    """Reads and checks a topology file.

    Raises ContractError, which lists everything that is wrong.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ContractError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict | None):
        raise ContractError(f"{path}: must be a mapping; got {document!r:.80}")
    try:
        topology: Topology = json_format.ParseDict(document or {}, Topology())
    except json_format.ParseError as error:
        raise ContractError(f"{path}: {error}") from error
    if problems := check(topology):
        raise ContractError("\n".join(f"{path}: {problem}" for problem in problems))
    return topology


def check(topology: Topology) -> list[str]:
    """Returns everything that is wrong, each with its key, the value and what is allowed."""
    names = [cluster.name for cluster in topology.clusters]
    allowed = ", ".join(sorted(set(names))) or "none"
    problems = []

    def known(key: str, name: str) -> None:
        if name not in names:
            problems.append(f"{key}: unknown cluster {name!r}; clusters: {allowed}")

    def unique(key: str, seen: set[T], value: T) -> None:
        if value in seen:
            problems.append(f"{key}: {value!r} is listed twice")
        seen.add(value)

    def not_negative(key: str, value: float) -> None:
        if not (math.isfinite(value) and value >= 0):
            problems.append(f"{key}: {value} must be a number of at least 0")

    if not names:
        problems.append("clusters: empty; at least one cluster is needed")
    clusters: set[str] = set()
    for i, name in enumerate(names):
        unique(f"clusters[{i}].name", clusters, name)
        if not name or "|" in name or "." in name or " " in name:
            problems.append(f"clusters[{i}].name: {name!r} must be non-empty, without '|', '.' and spaces")
    links: set[tuple[str, str]] = set()
    for i, link in enumerate(topology.links):
        known(f"links[{i}].source_cluster", link.source_cluster)
        known(f"links[{i}].destination_cluster", link.destination_cluster)
        unique(f"links[{i}]", links, (link.source_cluster, link.destination_cluster))
        not_negative(f"links[{i}].rtt_ms", link.rtt_ms)
        not_negative(f"links[{i}].egress_usd_per_gb", link.egress_usd_per_gb)
        if link.source_cluster == link.destination_cluster:
            problems.append(f"links[{i}]: leads from {link.source_cluster!r} to itself; only pairs are links")
    services: set[str] = set()
    for i, service in enumerate(topology.services):
        unique(f"services[{i}].name", services, service.name)
        problems += _check_requests(f"services[{i}]", service)
        placed: set[str] = set()
        for j, placement in enumerate(service.placements):
            key = f"services[{i}].placements[{j}]"
            known(f"{key}.cluster", placement.cluster)
            unique(f"{key}.cluster", placed, placement.cluster)
            not_negative(f"{key}.threshold_rps", placement.threshold_rps)
            if placement.HasField("autoscaler"):
                problems += _check_autoscaler(f"{key}.autoscaler", placement.autoscaler)
    not_negative("usd_per_ms_per_million_requests", topology.usd_per_ms_per_million_requests)
    return problems


def _check_autoscaler(key: str, autoscaler: Autoscaler) -> list[str]:
    problems, target = [], autoscaler.target_utilisation
    if not 0 < target <= 1:
        problems.append(f"{key}.target_utilisation: {target:g} must be above 0 and at most 1")
    if autoscaler.max_pods < 1:
        problems.append(f"{key}.max_pods: {autoscaler.max_pods} must be at least 1")
    return problems


def _seconds(duration: Duration) -> float:
    seconds: float = duration.seconds + duration.nanos / 1e9
    return seconds


def _check_requests(key: str, service: Service) -> list[str]:
    """Returns what is wrong with the settings of callers' proxies for the service."""
    problems = [
        f"{key}.{name}: {value!r} must be absent or one of {', '.join(allowed[1:])}"
        for name, value, allowed in (
            ("load_report", service.load_report, LOAD_REPORTS),
            ("replay", service.replay, REPLAYS),
            ("check", service.check, CHECKS),
        )
        if value not in allowed
    ]
    return problems + _check_timeouts(f"{key}.timeouts", service.timeouts)


def _check_timeouts(key: str, timeouts: Timeouts) -> list[str]:
    seconds = {name: _seconds(getattr(timeouts, name)) for name in TIMEOUTS}
    problems = [
        f"{key}.{name}: {value:g}s must be {SHORTEST_TIMEOUT_S:g}s..{LONGEST_TIMEOUT_S}s, or 0s for none"
        for name, value in seconds.items()
        if value != 0 and not SHORTEST_TIMEOUT_S <= value <= LONGEST_TIMEOUT_S
    ]
    if 0 < seconds["request"] < seconds["per_try"]:
        problems.append(
            f"{key}.per_try: {seconds['per_try']:g}s must be at most request, {seconds['request']:g}s"
        )
    return problems
