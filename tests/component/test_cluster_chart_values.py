"""Values of spillway-cluster reach pods, rules and filters, and the README names each value."""

import copy
import json
import re
from typing import Any

import pytest
import yaml
from cluster_chart import CART, CHART, ISTIO, REQUIRED, find, helm, render

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]


def test_a_managed_server_is_trusted_by_what_is_said_for_it():
    """By default the authority is ca.crt.

    Values can name another key of the ConfigMap, or the images' root certificates, which need no
    ConfigMap.
    """
    for trust, wanted in (
        ({}, ("/etc/spillway-secrets/trust/ca.crt", "/etc/spillway/trust/ca.crt")),
        ({"kafka": "system", "nats": "nats.crt"}, ("system", "/etc/spillway/trust/nats.crt")),
    ):
        objects = render(REQUIRED | {"trust": trust})
        for name, variable, authority in zip(
            ("spillway-collector", "spillway-relay"),
            ("SPILLWAY_KAFKA_TLS_CA", "SPILLWAY_NATS_CA"),
            wanted,
            strict=True,
        ):
            spec = find(objects, "StatefulSet", name)["spec"]["template"]["spec"]
            assert {"name": variable, "value": authority} in spec["containers"][0]["env"]
            [volume] = [v for v in spec["volumes"] if v["name"] == "trust"]
            assert volume["configMap"]["optional"] is (authority == "system")


def test_the_collector_is_told_of_the_token_endpoint_and_may_reach_it():
    """With OAUTHBEARER the endpoint is checked with the system's roots by default.

    Values set its authorities, ports and addresses.
    """
    oauth = {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "https://login.example/token", "scope": "kafka"}}
    values = REQUIRED | {"collector": {"kafka": REQUIRED["collector"]["kafka"] | oauth}}
    kafka = {"ports": [{"port": 9093}, {"port": 9094}]}
    token_ports = {"kafkaTokenPorts": [8443], "kafkaTokenCIDRs": ["203.0.113.0/24"]}
    to = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
    for trust, authority, policy, egress in (
        ({"kafka": "system"}, "system", {}, {"ports": [{"port": 443}]}),
        ({"kafka": "system", "kafkaToken": "login.crt"}, "/etc/spillway-secrets/trust/login.crt", token_ports,
         {"ports": [{"port": 8443}], "to": to}),
    ):  # fmt: skip
        objects = render(values | {"trust": trust, "networkPolicy": policy})
        spec = find(objects, "StatefulSet", "spillway-collector")["spec"]["template"]["spec"]
        environment = {v["name"]: v.get("value") for v in spec["containers"][0]["env"]}
        assert environment["SPILLWAY_KAFKA_SASL_TOKEN_URL"] == "https://login.example/token"
        assert environment["SPILLWAY_KAFKA_SASL_TOKEN_CA"] == authority
        assert environment["SPILLWAY_KAFKA_SASL_SCOPE"] == "kafka"
        [volume] = [v for v in spec["volumes"] if v["name"] == "trust"]
        assert volume["configMap"]["optional"] is (authority == "system")
        assert find(objects, "NetworkPolicy", "spillway-collector")["spec"]["egress"] == [kafka, egress]


def test_the_collectors_ports_to_kafka_may_be_said():
    """The values name the ports of brokers that advertise others than those of their addresses."""
    [policy] = [
        o["spec"]
        for o in render(REQUIRED | {"networkPolicy": {"kafkaPorts": [9194, 9092]}})
        if (o["kind"], o["metadata"]["name"]) == ("NetworkPolicy", "spillway-collector")
    ]
    assert policy["egress"] == [{"ports": [{"port": 9194}, {"port": 9092}]}]


def sample_ratios(objects: list[dict]) -> dict[str, list[float]]:
    """Returns the sampling ratios that filters get, by service: inbound, then outbound.

    They come from the bootstraps and the WasmPlugins.
    """
    configurations = [o["spec"]["pluginConfig"] for o in objects if o["kind"] == "WasmPlugin"]
    for config_map in (o for o in objects if o["kind"] == "ConfigMap" and "envoy.yaml" in o["data"]):
        listeners = yaml.safe_load(config_map["data"]["envoy.yaml"])["static_resources"]["listeners"]
        filters = [
            f for listener in listeners for f in http_filters(listener) if f["name"] == "spillway-filter"
        ]
        configurations += [json.loads(f["typed_config"]["config"]["configuration"]["value"]) for f in filters]
    found: dict[str, list[float]] = {}
    for configuration in configurations:
        found.setdefault(configuration["service"], []).append(configuration["sample_ratio"])
    return found


def http_filters(listener: dict) -> list[dict]:
    return listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]


def sampled(**sampling: object) -> dict:
    """Returns values with one application in each of three namespaces.

    Two have sidecars, and one has the filter in Istio's proxies.
    """
    applications = [CART, CART | {"service": "pay", "namespace": "pay"}]
    values = copy.deepcopy(ISTIO) | {"sidecar": {"applications": applications}, "sampling": sampling}
    values["istio"]["namespaces"] = ["mesh"]
    values["istio"]["routes"]["workloads"] = []
    values["istio"]["filter"]["services"] = [{"service": "gate", "namespace": "mesh", "edge": True}]
    return values


def test_one_value_says_how_many_traces_every_filter_keeps():
    """The value applies to both directions of sidecars and WasmPlugins.

    A namespace's own value overrides it, also 0. Without values every trace is kept.
    """
    assert sample_ratios(render(sampled())) == dict.fromkeys(("cart", "pay", "gate"), [1, 1])
    every = sample_ratios(render(sampled(ratio=0.25)))
    assert every == dict.fromkeys(("cart", "pay", "gate"), [0.25, 0.25])
    ratios = sample_ratios(render(sampled(ratio=0.000001, namespaces={"shop": 0.5, "mesh": 0})))
    assert ratios == {"cart": [0.5, 0.5], "pay": [0.000001] * 2, "gate": [0, 0]}


def test_a_namespace_without_a_filter_is_refused_by_name():
    """A misspelt namespace would leave its costs unchanged without any notice."""
    done = helm("template", "release", str(CHART), values=sampled(namespaces={"shpo": 0.5}))
    assert done.returncode != 0
    assert "sampling.namespaces: shpo: no entry of" in done.stderr
    assert "must be one of: mesh, pay, shop" in done.stderr


def leaves(values: dict, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value and not {"requests", "matchLabels"} & set(value):
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def test_the_readme_tells_every_value_and_its_default():
    """The table has exactly the values of values.yaml, with their defaults."""
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    known = leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
    assert dict(rows) == {name: json.dumps(value) for name, value in known.items()}
