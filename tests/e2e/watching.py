"""Samples of rules, placements and boards during a fault, from Redis and from the Envoys."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx
import redis
from google.protobuf import json_format
from redis.exceptions import RedisError
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import ContractError, names, traffic_class
from spillway_contracts.hot_state import DemandEntry, UnknownEntry
from spillway_lab.stack import envoys
from spillway_lab.stack.control import Control
from spillway_lab.stack.stack import LabStack

PERIOD_S, ENVOYS_PERIOD_S = 0.25, 1.0

Rule = tuple[str, str, str]  # source cluster, source service, class
Weights = Mapping[Rule, Mapping[str, int]]  # by destination cluster


@dataclass(frozen=True)
class Sample:
    """The state at one moment.

    - `at`: when it was taken (`time.monotonic`).
    - `weights`: the rules in force.
    - `placed`: connected Envoys by cluster and service; None if the key is absent.
    - `unknown`: what the boards report as unknown.
    - `demand`: requests per second of each class.
    - `age_s`, `known_s`: age of the last news in seconds.
    - `clock_s`: Unix time when `time.monotonic` was 0. It changes when the clock is set.
    """

    at: float
    weights: Weights
    placed: Mapping[str, Mapping[str, int] | None] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    demand: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    age_s: Mapping[str, float] = field(default_factory=dict)  # of the newest demand, by cluster
    # by cluster and service
    known_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    clock_s: float = 0.0


class Watch:
    """Takes samples until the block ends. What cannot be read is not sampled.

    `published` samples come from Redis and `routed` ones from Envoys.
    """

    def __init__(self, stack: LabStack, control: Control) -> None:
        self._stack, self._control, self._end = stack, control, threading.Event()
        self._redis = redis.Redis.from_url(stack.redis_url("optimizer"), socket_timeout=2)
        self._published: list[Sample] = []
        self._routed: list[Sample] = []
        self._threads = [
            threading.Thread(target=self._run, args=arguments, daemon=True)
            for arguments in (
                (self.now, PERIOD_S, self._published),
                (self._envoys, ENVOYS_PERIOD_S, self._routed),
            )
        ]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def published(self, start: float, end: float) -> list[Sample]:
        return [s for s in list(self._published) if start <= s.at <= end]

    def routed(self, start: float, end: float) -> list[Sample]:
        return [s for s in list(self._routed) if start <= s.at <= end]

    def expected(self) -> dict[str, Counter[str]]:
        """Returns, by cluster, the expected number of placed Envoys of each service."""
        found: dict[str, Counter[str]] = {cluster: Counter() for cluster in self._stack.scenario.clusters}
        for pod in self._stack.plan.pods:
            found[pod.cluster][pod.service] += 1
        return found

    def now(self) -> Sample:
        """Reads a sample from Redis. Raises one of UNREADABLE."""
        clusters, at, now = self._stack.scenario.clusters, time.monotonic(), time.time()
        demand = {cluster: self._demand(cluster) for cluster in clusters}
        unknown = {cluster: self._unknown(cluster) for cluster in clusters}
        return Sample(
            at,
            self._weights(),
            {cluster: self._placed(cluster) for cluster in clusters},
            {
                c: {name: entry.reason for name, entry in found.items() if entry.reason}
                for c, found in unknown.items()
            },
            {
                cluster: {name: entry.rps for name, entry in board.items()}
                for cluster, board in demand.items()
            },
            {
                c: now - max((entry.at for entry in board.values()), default=0.0)
                for c, board in demand.items()
            },
            {
                c: {name: now - entry.at for name, entry in found.items() if not entry.reason}
                for c, found in unknown.items()
            },
            now - at,
        )

    def _run(self, take: Callable[[], Sample], period_s: float, samples: list[Sample]) -> None:
        while not self._end.wait(period_s):
            try:
                sample = take()
            except UNREADABLE:
                continue
            if sample.weights:
                samples.append(sample)

    def _weights(self) -> Weights:
        current = self._control.in_force()
        found = {}
        for cluster, ruleset in (current.rulesets if current else {}).items():
            for rule in ruleset.rules:
                key = (cluster, rule.source_service, traffic_class.format_id(rule.traffic_class))
                found[key] = {d.cluster: d.weight for d in rule.destinations}
        return found

    def _placed(self, cluster: str) -> dict[str, int] | None:
        text = self._redis.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
        if not text:
            return None
        heartbeat = json_format.Parse(text, Heartbeat(), ignore_unknown_fields=True)
        return {s.service: s.connected_envoys for s in heartbeat.services}

    def _unknown(self, cluster: str) -> dict[str, UnknownEntry]:
        found = self._redis.hgetall(names.REDIS_KEY_UNKNOWN.format(cluster=cluster))
        return {name.decode(): UnknownEntry.from_json(text) for name, text in found.items()}

    def _demand(self, cluster: str) -> dict[str, DemandEntry]:
        found = self._redis.hgetall(names.REDIS_KEY_DEMAND.format(cluster=cluster))
        return {name.decode(): DemandEntry.from_json(text) for name, text in found.items()}

    def _envoys(self) -> Sample:
        """Returns the weights that Envoys use. Envoys that do not answer are left out."""
        found: dict[Rule, Mapping[str, int]] = {}
        services = {pod.service for pod in self._stack.plan.pods}
        for pod in self._stack.plan.pods:
            try:
                routes = envoys.outbound_routes(pod) or {}
            except httpx.HTTPError:
                continue
            for service in services:
                for name, weights in envoys.weights(routes, service).items():
                    if " " in name:  # not a service's catch-all
                        found[pod.cluster, pod.service, name] = weights
        return Sample(time.monotonic(), found)


UNREADABLE = (RedisError, json_format.ParseError, ContractError)
