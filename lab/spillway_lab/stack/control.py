"""The control loop as an operator sees it: policy, rules in force, and what the boards show."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import redis
from clickhouse_driver import Client
from clickhouse_driver.errors import Error as ClickHouseError
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry

from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import local_http
from spillway_lab.stack.stack import LabStack

_LAST_SOLVES = """
    SELECT at, application, policy, outcome, reason FROM solves WHERE at = (SELECT max(at) FROM solves)
"""


@dataclass(frozen=True)
class InForce:
    """The rulesets that are published for all clusters, with their common version."""

    version: int
    policy: str
    predicted_mean_ms: float
    rulesets: dict[str, Ruleset]  # by source cluster


class Control:
    """Reads the hot state of one stack and sets its policy.

    It has the Redis rights of `spillway_optimizer policy`.
    """

    def __init__(self, stack: LabStack) -> None:
        self._stack = stack
        self._redis = redis.Redis.from_url(stack.redis_url("optimizer"), socket_timeout=5)

    def set_policy(self, policy: str) -> None:
        self._redis.set(names.REDIS_KEY_POLICY, policy)

    def in_force(self) -> InForce | None:
        """Returns None until the rulesets of all clusters have the same version."""
        found = {}
        for cluster in self._stack.scenario.clusters:
            text = self._redis.get(names.REDIS_KEY_IN_FORCE.format(cluster=cluster))
            if text is None:
                return None
            found[cluster] = json_format.Parse(text, Ruleset())
        versions = {ruleset.version for ruleset in found.values()}
        if len(versions) != 1:
            return None
        ruleset = next(iter(found.values()))
        return InForce(ruleset.version, ruleset.policy, ruleset.predicted.mean_latency_ms, found)

    def demand_rps(self) -> float:
        total = 0.0
        for cluster in self._stack.scenario.clusters:
            entries = self._redis.hgetall(names.REDIS_KEY_DEMAND.format(cluster=cluster)).values()
            total += sum(DemandEntry.from_json(entry).rps for entry in entries)
        return total

    def versions_at_envoys(self) -> set[int]:
        """Returns, for each service in each cluster, the lowest ruleset version in force at its
        Envoys.

        Relays derive it from what their Envoys accepted, because a version that changes nothing for
        a service is not sent to it. The value 0 means that the Envoys have only the fallback, or
        that no relay that answers has an Envoy of the service.
        """
        found = set()
        for cluster in self._stack.cluster_ports:
            lowest: dict[str, int] = {}
            for url in self._stack.relays(cluster).values():
                for service, version in _in_force(url).items():
                    lowest[service] = min(version, lowest.get(service, version))
            found |= {lowest.get(pod.service, 0) for pod in self._stack.plan.pods if pod.cluster == cluster}
        return found

    def wait_policy(self, policy: str, timeout: float, progress: Callable[[str], None]) -> InForce:
        """Waits until every Envoy has a ruleset of the policy, and returns that ruleset.

        Raises LabError after `timeout` seconds.
        """
        deadline, wanted, current = time.monotonic() + timeout, None, None
        while time.monotonic() < deadline:
            current = self.in_force()
            if current is None or current.policy != policy:
                progress(f"waiting for a ruleset of {policy!r}")
            else:
                wanted = wanted or current.version
                reached = self.versions_at_envoys()
                if min(reached) >= wanted:
                    return current
                progress(f"version {wanted} is published; Envoys have {sorted(reached)}")
            time.sleep(0.5)
        have = f"version {current.version} of {current.policy!r}" if current else "none"
        raise LabError(
            f"no ruleset of policy {policy!r} reached every Envoy within {timeout:.0f} s; "
            f"published: {have}; the optimizer's last solves: {self.last_solves()}"
        )

    def last_solves(self) -> str:
        """Returns the newest rows of `solves`, one per application, for error texts."""
        try:
            url = f"{self._stack.clickhouse_url()}?connect_timeout=5&send_receive_timeout=5"
            with Client.from_url(url) as client:
                rows = client.execute(_LAST_SOLVES)
        except (ClickHouseError, EOFError, OSError) as error:
            return f"unknown, {type(error).__name__}: {error}"
        return "; ".join(", ".join(map(str, row)) for row in rows) or "none"

    def shares(self) -> dict[str, float]:
        """Returns what each cluster sends away by the rules in force, 0 to 1, by a name for plots.

        Empty while that is not known.
        """
        try:
            current = self.in_force()
        except (redis.RedisError, ValueError):
            return {}
        found = current.rulesets if current else {}
        return {f"share sent away by {c}": _remote_share(ruleset, c) for c, ruleset in found.items()}

    def line(self) -> str:
        """Returns one line on the state of the loop, for progress output."""
        try:
            current, demand = self.in_force(), self.demand_rps()
        except (redis.RedisError, ValueError) as error:
            return f"hot state away: {type(error).__name__}"
        if current is None:
            return f"{demand:.0f} req/s · no ruleset yet"
        shares = [_remote_share(ruleset, cluster) for cluster, ruleset in current.rulesets.items()]
        sent = " ".join(f"{c}↗{s:.0%}" for c, s in zip(current.rulesets, shares, strict=True) if s > 0.0005)
        predicted = f"{current.predicted_mean_ms:.0f} ms predicted"
        return f"{demand:.0f} req/s · ruleset v{current.version} ({current.policy}, {predicted}) {sent}"


def _in_force(url: str) -> dict[str, int]:
    """Returns service -> version in force at a relay's Envoys.

    Returns an empty dict for a relay that does not answer, because its Envoys go to the other one.
    """
    try:
        return local_http.get(f"{url}/status").json()["in_force"]
    except httpx.HTTPError:
        return {}


def _remote_share(ruleset: Ruleset, cluster: str) -> float:
    """Largest share that any rule of the cluster sends to other clusters."""
    away = [sum(d.weight for d in rule.destinations if d.cluster != cluster) for rule in ruleset.rules]
    return max(away, default=0) / names.VALUE_WEIGHT_TOTAL


def describe(in_force: InForce) -> str:
    """Returns the rules in force with their reasons, for people."""
    lines = []
    for cluster, ruleset in in_force.rulesets.items():
        for rule in ruleset.rules:
            split = ", ".join(f"{d.cluster} {d.weight / 100:.2f} %" for d in rule.destinations if d.weight)
            lines.append(f"{cluster} {rule.source_service} → {rule.traffic_class.service}: {split}")
            lines.append(f"    {rule.reason}")
    return "\n".join(lines)
