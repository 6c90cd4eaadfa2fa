"""What Prometheus scrapes: the pods listen on the ports, and policies let it in."""

import copy
from typing import Any

import charts
import pytest
from spillway_lab.testing.servers import ROOT
from test_every_pod import ALL

pytestmark = pytest.mark.component
NAMESPACES = {"matchLabels": {"kubernetes.io/metadata.name": "observers"}}


@pytest.fixture(scope="module", params=ALL)
def objects(request: pytest.FixtureRequest) -> list[dict]:
    charts.build()
    values = copy.deepcopy(ALL[request.param])
    values["networkPolicy"] = {"metricsNamespaces": NAMESPACES}
    return charts.render(ROOT / "infra/helm" / request.param, values)


def targets(objects: list[dict]) -> list[tuple[str, dict, str]]:
    """Returns (monitor, labels of the pods, port) of everything that is scraped."""
    found = []
    services = charts.of(objects, "Service").values()
    for monitor in objects:
        match monitor["kind"]:
            case "PodMonitor":
                [endpoint] = monitor["spec"]["podMetricsEndpoints"]
                found.append(
                    (charts.name(monitor), monitor["spec"]["selector"]["matchLabels"], endpoint["port"])
                )
            case "ServiceMonitor":
                [endpoint] = monitor["spec"]["endpoints"]
                for service in services:
                    chosen = charts.selects(
                        monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]
                    )
                    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
                    if chosen and endpoint["port"] in ports:
                        found.append(
                            (charts.name(monitor), service["spec"]["selector"], ports[endpoint["port"]])
                        )
    return found


def listening(template: dict, port: str) -> list[int]:
    return [
        p["containerPort"]
        for c in charts.containers(template)
        for p in c.get("ports", [])
        if p.get("name") == port
    ]


def lets_in(policy: dict, port: str, number: int) -> bool:
    """Whether the policy opens the port to Prometheus' namespaces and not to all."""
    return any(
        {"namespaceSelector": NAMESPACES} in rule.get("from", [])
        and any(entry["port"] in (port, number) for entry in rule["ports"])
        for rule in policy["spec"].get("ingress", [])
    )


def test_prometheus_reaches_every_port_that_it_is_to_scrape(objects: list[dict]):
    """Each monitor finds pods with the port, and a policy of these pods lets Prometheus in.

    Strimzi makes the policies of its pods and names their port itself.
    """
    policies = charts.of(objects, "NetworkPolicy").values()
    scraped = targets(objects)
    for who, selector, port in scraped:
        pods = [t for _, t in charts.every_pod(objects) if charts.selects(selector, t["metadata"]["labels"])]
        assert pods, who
        for template in pods:
            if charts.by_strimzi(template):
                assert port == "tcp-prometheus", who
                continue
            [number] = listening(template, port)
            mine = [
                p for p in policies
                if charts.selects(p["spec"]["podSelector"].get("matchLabels", {}), template["metadata"]["labels"])
            ]  # fmt: skip
            assert any(lets_in(policy, port, number) for policy in mine), f"{who}: {port}"
    assert len(scraped) >= 3


def test_each_bundled_server_is_scraped_and_none_without_monitoring():
    """Each server has a PodMonitor, by whose name the alerts identify it.

    Without monitoring there are neither exporters nor open ports.
    """
    charts.build()
    chart, values = ROOT / "infra/helm/spillway-global", copy.deepcopy(ALL["spillway-global"])
    monitors = charts.of(charts.render(chart, values), "PodMonitor")
    assert set(monitors) == {f"spillway-{server}" for server in ("nats", "redis", "kafka", "clickhouse")}
    objects = charts.render(chart, values | {"monitoring": {"prometheusRules": True}})
    assert charts.of(objects, "PodMonitor") == {}
    assert [
        c["name"]
        for _, t in charts.every_pod(objects)
        for c in charts.containers(t)
        if "exporter" in c["name"]
    ] == []
    kafka: dict[str, Any] = charts.of(objects, "Kafka")["spillway-kafka"]["spec"]
    assert "kafkaExporter" not in kafka and "metricsConfig" not in kafka["kafka"]
    for who, template in charts.every_pod(objects):
        assert listening(template, "metrics") == [], who
