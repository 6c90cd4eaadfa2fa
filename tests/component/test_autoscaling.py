"""Autoscaling of streams jobs as the chart declares it: KEDA's credentials and stability.

Stability is tested by a simulation. It combines the rendered ScaledObject, the algorithm of
Kubernetes' autoscaler, and a job whose workers take a fixed number of messages per second. Their
CPU use is proportional to what they take.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import charts
import pytest
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
CHART = ROOT / "infra/helm/spillway-global"
STEP_S, HOUR_S = 15, 3600
TOLERANCE = 0.1  # Kubernetes' default


def values(partitions: int = 8, **autoscaling: Any) -> dict[str, Any]:
    settings = {"enabled": True, "prometheus": "https://prometheus.monitoring:9090"} | autoscaling
    return {
        "image": {"registry": "registry.example/spillway"},
        "kafka": {"brokers": "kafka:9093", "clusters": ["west"], "partitions": partitions},
        "streams": {"autoscaling": settings},
    }


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


@pytest.fixture(scope="module")
def spec() -> dict:
    """A job's ScaledObject with the chart's defaults."""
    charts.build()
    return scaled(charts.render(CHART, values()))


def scaled(objects: list[dict], job: str = "curves") -> dict:
    return charts.of(objects, "ScaledObject")[f"spillway-{job}"]["spec"]


def trigger(spec: dict, kind: str) -> dict:
    [found] = [trigger for trigger in spec["triggers"] if trigger["type"] == kind]
    return found


def test_keda_asks_prometheus_without_credentials_where_none_are_given():
    """A Prometheus without any lag metric counts as a fault, not as a lag of zero."""
    objects = charts.render(CHART, values())
    charts.conform(objects)
    assert charts.of(objects, "TriggerAuthentication") == {}
    asked = trigger(scaled(objects), "prometheus")
    assert "authenticationRef" not in asked and "authModes" not in asked["metadata"]
    assert asked["metadata"]["ignoreNullValues"] == "false"


def test_keda_shows_what_the_secret_holds():
    """The Secret holds a user name, a password and a certificate.

    The authority of Prometheus comes from the user's ConfigMap. Every job's trigger refers to them.
    """
    settings = {"modes": ["basic", "tls"], "secret": "keda", "caConfigMap": "prometheus-ca"}
    objects = charts.render(CHART, values(authentication=settings))
    charts.conform(objects)
    spec = charts.of(objects, "TriggerAuthentication")["spillway-streams"]["spec"]
    keys = ("username", "password", "cert", "key")
    assert spec["secretTargetRef"] == [{"parameter": key, "name": "keda", "key": key} for key in keys]
    assert spec["configMapTargetRef"] == [{"parameter": "ca", "name": "prometheus-ca", "key": "ca.crt"}]
    for name in ("admit", "exclusive", "curves", "graph", "classify"):
        asked = trigger(scaled(objects, name), "prometheus")
        assert asked["authenticationRef"] == {"name": "spillway-streams"}, name
        assert asked["metadata"]["authModes"] == "basic,tls", name


@pytest.mark.parametrize(
    "wrong",
    [
        {"modes": ["oauth"]},
        {"modes": ["basic", "bearer"]},
        {"caConfigMap": "prometheus-ca"},
        {"mode": "basic"},
    ],
    ids=str,
)
def test_what_keda_would_not_take_is_refused(wrong: dict):
    done = charts.helm("template", "spillway", CHART, values=values(authentication=wrong))
    assert done.returncode != 0
    assert "/streams/autoscaling/authentication" in done.stderr


@dataclass
class Autoscaler:
    """Kubernetes' HorizontalPodAutoscaler with the triggers of a ScaledObject.

    `wanted` holds the recent (time, replicas).
    """

    spec: dict
    wanted: list[tuple[int, int]] = field(default_factory=list)
    changes: list[tuple[int, int]] = field(default_factory=list)

    def desired(self, replicas: int, lag_s: float, utilisation: float) -> int:
        """Returns the highest number of replicas that any trigger wants.

        It is proportional to the current number, and unchanged within the tolerance.
        """
        found = []
        for trigger in self.spec["triggers"]:
            if trigger["type"] == "cpu":
                ratio = utilisation / float(trigger["metadata"]["value"])
            else:
                ratio = lag_s / (float(trigger["metadata"]["threshold"]) * replicas)
            found.append(replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * replicas))
        return max(found)

    def step(self, now: int, replicas: int, lag_s: float, utilisation: float) -> int:
        """Returns the next number of replicas, after stabilisation and the policies' rate limit."""
        behavior = self.spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        up, down = behavior["scaleUp"], behavior["scaleDown"]
        self.wanted.append((now, self.desired(replicas, lag_s, utilisation)))
        most, least = self._within(now, down), self._within(now, up)
        target = replicas
        if min(least) > replicas:
            target = min(min(least), replicas + self._left(now, up, 1))
        elif max(most) < replicas:
            target = max(max(most), replicas - self._left(now, down, -1))
        target = max(self.spec["minReplicaCount"], min(self.spec["maxReplicaCount"], target))
        if target != replicas:
            self.changes.append((now, target - replicas))
        return target

    def _within(self, now: int, rule: dict) -> list[int]:
        return [n for at, n in self.wanted if at > now - rule["stabilizationWindowSeconds"]] or [
            self.wanted[-1][1]
        ]

    def _left(self, now: int, rule: dict, way: int) -> int:
        [policy] = rule["policies"]
        used = sum(n * way for at, n in self.changes if at > now - policy["periodSeconds"] and n * way > 0)
        return policy["value"] - used


def simulate(
    spec: dict, load: Callable[[int], float], hours: int, cores: float = 1.0
) -> list[tuple[int, int, float]]:
    """Returns (time, change of replicas, lag in seconds) per step.

    `load` is in messages per second, of which one worker takes one. `cores` is the worker's CPU use
    at that rate, in units of its request.
    """
    autoscaler, replicas, backlog, steps = Autoscaler(spec), 2, 0.0, []
    for now in range(0, hours * HOUR_S, STEP_S):
        taken = min(replicas * STEP_S, backlog + load(now) * STEP_S)
        backlog += load(now) * STEP_S - taken
        lag_s = backlog / max(load(now), 1e-9) * spec["maxReplicaCount"]  # summed over partitions
        after = autoscaler.step(now, replicas, lag_s, 100 * cores * taken / STEP_S / replicas)
        steps.append((now, after - replicas, backlog / max(load(now), 1e-9)))
        replicas = after
    return steps


def changes(steps: Iterable[tuple[int, int, float]], since_s: int) -> int:
    return sum(change != 0 for now, change, _ in steps if now >= since_s)


CONSTANT = [0.3, 0.9, 1.5, 2.5, 3.1, 4.4, 5.5]


@pytest.mark.parametrize("load", CONSTANT)
@pytest.mark.parametrize("cores", [0.8, 1.0, 1.6])
def test_the_number_of_workers_settles_under_a_constant_load(spec: dict, load: float, cores: float):
    """After two hours the number does not change for ten more hours, and nothing lags."""
    steps = simulate(spec, lambda _: load, 12, cores)
    assert changes(steps, 2 * HOUR_S) == 0
    assert max(lag for now, _, lag in steps if now >= 2 * HOUR_S) < 1


def test_a_day_takes_workers_up_and_down_once(spec: dict):
    """The load grows fourfold by day and falls by night, with a ripple of ten minutes.

    On the second day the number rises once and falls once.
    """

    def day(now: int) -> float:
        return 3 - 1.8 * math.cos(now / HOUR_S / 24 * 2 * math.pi) + 0.3 * math.sin(now / 600 * 2 * math.pi)

    steps = simulate(spec, day, 48)
    ways = [change > 0 for now, change, _ in steps if change and now >= 24 * HOUR_S]
    assert sum(first != second for first, second in zip(ways, ways[1:], strict=False)) <= 2
    assert max(lag for now, _, lag in steps if now >= 24 * HOUR_S) < 60


def test_by_lag_alone_it_would_never_settle(spec: dict):
    """The simulation shows why the second trigger exists.

    Without it workers leave, the lag grows, and the workers come back.
    """
    alone = spec | {"triggers": [trigger(spec, "prometheus")]}
    assert changes(simulate(alone, lambda _: 2.5, 12), 2 * HOUR_S) >= 6


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_there_are_never_more_workers_than_partitions(partitions: int):
    """The minimum does not exceed the maximum either.

    When Prometheus is away, no worker is removed.
    """
    spec = scaled(charts.render(CHART, values(partitions, minReplicas=3, maxReplicas=100)))
    assert spec["maxReplicaCount"] == partitions and spec["minReplicaCount"] <= partitions
    assert spec["fallback"]["replicas"] <= partitions
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    steps = simulate(spec, lambda _: 50.0, 2)
    assert 2 + sum(change for _, change, _ in steps) <= partitions
