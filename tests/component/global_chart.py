"""infra/helm/spillway-global: sets of values, and what a rendered pod uses."""

from collections.abc import Iterator
from typing import Any

import charts
import pytest
from spillway_lab.testing.servers import ROOT

CHART = ROOT / "infra/helm/spillway-global"
LEAST: dict[str, Any] = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "localhost:19093", "clusters": ["west", "east"]},
}
MONITORED = LEAST | {
    "monitoring": {
        "serviceMonitors": True,
        "prometheusRules": True,
        "runbooks": "https://example.org/",
        "dashboards": True,
        "labels": {"a": "b"},
    },
    "streams": {"autoscaling": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"}},
    "credentialsRevision": "c1",
    "topologyRevision": "t1",
    "guardrails": {"maximum_shift": 2000},
}
EXTERNAL = {
    "type": "LoadBalancer",
    "annotations": {"lb.example/scope": "internal"},
    "loadBalancerSourceRanges": ["203.0.113.0/24"],
}
BUNDLED = LEAST | {
    "bundled": {"nats": {"enabled": True, "external": EXTERNAL}, "redis": {"enabled": True}},
}
OPERATED = {"image": LEAST["image"], "kafka": {"clusters": ["west"]}, "clickhouse": {"variant": "replicated"}}
OPERATED |= {"bundled": {"kafka": {"enabled": True}, "clickhouse": {"enabled": True}}}
MONITORED_SERVERS = MONITORED | OPERATED | {"kafka": LEAST["kafka"]}
MONITORED_SERVERS["bundled"] = OPERATED["bundled"] | BUNDLED["bundled"]
IN_CLEAR = {**LEAST, "plaintext": True, "kafka": LEAST["kafka"] | {"tls": False}}
REPLICATED = LEAST | {"clickhouse": {"variant": "replicated", "cluster": "{cluster}"}}
TOKENS = {
    "sasl": "OAUTHBEARER",
    "oauth": {"tokenUrl": "https://login.example:8443/token?a=b", "scope": "kafka"},
}
TOKENS = {**LEAST, "kafka": LEAST["kafka"] | TOKENS}
BARE = {**LEAST, "kafka": LEAST["kafka"] | {"createTopics": False, "sasl": ""}}
BARE |= {"clickhouse": {"migrate": False}, "networkPolicy": {"enabled": False}}
ALL_JOBS = {**LEAST, "streams": {"mode": "all"}, "monitoring": {"serviceMonitors": True}}
SETS = {
    "least": LEAST,
    "all jobs": ALL_JOBS,
    "monitored": MONITORED,
    "bundled": BUNDLED,
    "operated": OPERATED,
    "monitored servers": MONITORED_SERVERS,
    "in clear": IN_CLEAR,
    "replicated": REPLICATED,
    "tokens": TOKENS,
    "bare": BARE,
}
each_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


def references(template: dict) -> Iterator[tuple[str, str]]:
    """Yields (Secret or ConfigMap, its name) for everything that a pod uses."""
    for container in charts.containers(template):
        for variable in container.get("env", []):
            if source := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", source["name"]
    for volume in template["spec"].get("volumes", []):
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            if "secret" in source:
                yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
            if "configMap" in source:
                yield "ConfigMap", source["configMap"]["name"]


def environment(objects: list[dict], name: str) -> dict[str, Any]:
    """Returns the variables of the workload's first container that have a literal value."""
    workload = next(w for w, _ in charts.pods(objects) if w["metadata"]["name"] == name)
    container = workload["spec"]["template"]["spec"]["containers"][0]
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}
