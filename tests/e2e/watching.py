"""What is true of rules and placements during a fault: sampled from Redis, judged afterwards by pure functions."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import redis
from google.protobuf import json_format
from redis.exceptions import RedisError
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names, traffic_class
from spillway_lab.control import Control
from spillway_lab.stack import LabStack

PERIOD_S = 0.25
# Until then a ruleset may come that was made of telemetry from before the fault.
NOTICED_S = 8.0
# In weights, which sum to 10 000. A rise by less is noise. Much has collapsed when less than a tenth of it is left: two
# ways of which the optimizer may take either share their weight one way and another.
RISE, KEPT, MUCH = 500, 0.1, 1000

Rule = tuple[str, str, str]  # source cluster, source service, class
Weights = Mapping[Rule, Mapping[str, int]]  # by destination cluster


@dataclass(frozen=True)
class Sample:
    """At one moment: the rules in force, and by cluster the Envoys of each service (None: the key is absent)."""

    at: float
    weights: Weights
    placed: Mapping[str, Mapping[str, int] | None]


class Watch:
    """Takes samples until it is left; what cannot be read is not sampled."""

    def __init__(self, stack: LabStack, control: Control) -> None:
        self._stack, self._control, self._end = stack, control, threading.Event()
        self._redis = redis.Redis.from_url(stack.redis_url("optimizer"), socket_timeout=2)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._samples: list[Sample] = []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def between(self, start: float, end: float) -> list[Sample]:
        return [s for s in list(self._samples) if start <= s.at <= end]

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            try:
                sample = Sample(time.time(), self._weights(), self._placed())
            except (RedisError, json_format.ParseError):
                continue
            if sample.weights:
                self._samples.append(sample)

    def _weights(self) -> Weights:
        current = self._control.in_force()
        found = {}
        for cluster, ruleset in (current.rulesets if current else {}).items():
            for rule in ruleset.rules:
                key = (cluster, rule.source_service, traffic_class.format_id(rule.traffic_class))
                found[key] = {d.cluster: d.weight for d in rule.destinations}
        return found

    def _placed(self) -> dict[str, dict[str, int] | None]:
        found: dict[str, dict[str, int] | None] = {}
        for cluster in self._stack.scenario.clusters:
            text = self._redis.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
            heartbeat = json_format.Parse(text, Heartbeat(), ignore_unknown_fields=True) if text else None
            found[cluster] = heartbeat and {s.service: s.connected_envoys for s in heartbeat.services}
        return found


def rising(before: list[Sample], during: list[Sample], unknown: Iterable[str]) -> list[str]:
    """Weights towards a cluster whose load is unknown that rise above every value before."""
    said = {}
    for sample in during:
        for rule, weights in sample.weights.items():
            for cluster in unknown:
                most = max((s.weights.get(rule, {}).get(cluster, 0) for s in before), default=0)
                if weights.get(cluster, 0) > most + RISE:
                    said[rule, cluster] = (
                        f"{_name(rule)}: {most} → {weights[cluster]} towards {cluster}, unknown"
                    )
    return list(said.values())


def collapsing(before: list[Sample], during: list[Sample], lost: Iterable[str] = ()) -> list[str]:
    """Rules that go away, and weights that fall below a part of the least value before."""
    said = {}
    common = set.intersection(*(set(s.weights) for s in before)) if before else set()
    for rule in {r for r in common if r[0] not in lost}:
        least = {c: min(s.weights[rule].get(c, 0) for s in before) for c in before[0].weights[rule]}
        for sample in during:
            now = sample.weights.get(rule, {})
            for cluster, weight in least.items():
                if cluster not in lost and weight > MUCH and now.get(cluster, 0) < weight * KEPT:
                    said[rule, cluster] = f"{_name(rule)}: {weight} → {now.get(cluster, 0)} towards {cluster}"
    return list(said.values())


def changing(before: list[Sample], during: list[Sample], services: Iterable[str]) -> list[str]:
    """Rules of these callers whose weights are not what they were."""
    if not before:
        return []
    last = {r: w for r, w in before[-1].weights.items() if r[1] in set(services)}
    said = {} if last else {None: f"no rules of {', '.join(services)}"}
    for sample in during:
        for rule, weights in last.items():
            if sample.weights.get(rule) != weights:
                said[rule] = (
                    f"{_name(rule)}: {dict(weights)} → {sample.weights.get(rule)}, of another application"
                )
    return list(said.values())


def vanishing(stack: LabStack, during: list[Sample], lost: Iterable[str], always: bool) -> list[str]:
    """Envoys that are not placed though they live. An absent key says nothing, unless it must be there `always`."""
    said = {}
    for cluster in set(stack.scenario.clusters) - set(lost):
        expected = Counter(pod.service for pod in stack.plan.pods if pod.cluster == cluster)
        for sample in during:
            placed = sample.placed[cluster]
            if placed is None and always:
                said[cluster] = f"{cluster}: no placement"
            if placed is not None and placed != expected:
                said[cluster] = f"{cluster}: placement {placed}, expected {dict(expected)}"
    return list(said.values())


def _name(rule: Rule) -> str:
    return f"{rule[0]} {rule[1]} → {rule[2]}"
