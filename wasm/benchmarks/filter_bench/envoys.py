"""Bootstraps of the benchmark's Envoys: the pod's own listeners, and a trivial application.

The proxy under test is `infra/envoy/pod.yaml` itself, with the relay's routes and clusters written
in statically. The plain variant is the same without the filter. A baseline is another build of the
filter. If that build does not know all settings, it gets only those that every build has.
"""

import json
import re
from pathlib import Path

import yaml
from filter_harness.parts import TYPES, address, class_route, cluster

ROOT = Path(__file__).resolve().parents[3]
TEMPLATE = ROOT / "infra/envoy/pod.yaml"
BODY_BYTES = 1024
EVERY_BUILDS_SETTINGS = ("direction", "cluster", "service", "collector_cluster")
SERVICE = "cart"
CALLEES = ("users", "stock", "prices", "mail")
TEMPLATES = ("/users/{id}", "/users/{id}/orders", "/users/{id}/orders/{order}", "/checkout", "/health")
METHODS = ("GET", "POST")
METADATA = {"filter_metadata": {"spillway": {"ruleset_version": 42, "input_window": "w1"}}}
ANSWERED = {
    "content-type": "application/json",
    "x-spillway-service-time-us": "150",
    "x-spillway-cluster": "east",
}
"""Response headers of the application: those of a callee behind a filter of its own."""


def render(values: dict[str, str]) -> dict:
    """Returns the pod's bootstrap. Placeholders without a value become 0.

    They belong to parts that the benchmark replaces.
    """
    text = re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], "0"), TEMPLATE.read_text())
    return yaml.safe_load(text)


def pod(values: dict[str, str], upstream: int) -> dict:
    """Returns the pod's bootstrap with static routes, as the relay serves them."""
    rendered = render(values)
    static = rendered["static_resources"]
    for listener, hosts in zip(static["listeners"], (inbound_hosts(), outbound_hosts()), strict=True):
        manager = manager_of(listener)
        for key in ("rds", "scoped_routes"):
            manager.pop(key, None)
        manager["http_filters"] = [f for f in manager["http_filters"] if "spillway-alone" not in f["name"]]
        manager["route_config"] = {"virtual_hosts": hosts}
    clusters = [c for c in static["clusters"] if c["name"] != "spillway-xds"]
    # The benchmark's receiver uses no TLS: only the filter is measured.
    for entry in clusters:
        entry.pop("transport_socket", None)
    clusters += [cluster(f"{s}|{c}", upstream) for s in CALLEES for c in ("west", "east")]
    static["clusters"] = clusters
    del rendered["dynamic_resources"], rendered["cluster_manager"]
    return rendered


def manager_of(listener: dict) -> dict:
    """Returns the HTTP connection manager of a listener."""
    [chain] = listener["filter_chains"]
    [network] = chain["filters"]
    return network["typed_config"]


def change_filter(bootstrap: dict, keep: bool) -> None:
    """Removes the filter, or with `keep` reduces it to the settings that every build knows."""
    for listener in bootstrap["static_resources"]["listeners"]:
        manager = manager_of(listener)
        kept = []
        for entry in manager["http_filters"]:
            if "wasm" in entry["typed_config"]["@type"]:
                if not keep:
                    continue
                configuration = entry["typed_config"]["config"]["configuration"]
                settings = json.loads(configuration["value"])
                configuration["value"] = json.dumps({key: settings[key] for key in EVERY_BUILDS_SETTINGS})
            kept.append(entry)
        manager["http_filters"] = kept


def class_routes(service: str, action: dict) -> list[dict]:
    """Returns one route per class, the most specific first, and then the catch-all."""
    templates = sorted(TEMPLATES, key=len, reverse=True)
    names = [f"{service} {method} {template}" for template in templates for method in METHODS]
    other = {"name": "other", "match": {"prefix": "/"}, "route": action, "metadata": METADATA}
    return [*(class_route(name, action, METADATA) for name in names), other]


def inbound_hosts() -> list[dict]:
    """Returns the virtual host of the inbound listener."""
    action = {"cluster": "spillway-app", "timeout": "0s"}
    return [{"name": "inbound", "domains": ["*"], "routes": class_routes(SERVICE, action)}]


def outbound_hosts() -> list[dict]:
    """Returns one virtual host per callee, whose calls are weighted over two clusters."""
    out = []
    for service in CALLEES:
        weights = [{"name": f"{service}|west", "weight": 7000}, {"name": f"{service}|east", "weight": 3000}]
        action = {"weighted_clusters": {"clusters": weights}, "timeout": "15s"}
        out.append(
            {"name": service, "domains": [service, f"{service}:*"], "routes": class_routes(service, action)}
        )
    return out


def application(port: int, admin: int) -> dict:
    """Returns the bootstrap of the application, which answers everything at once.

    It answers as a callee behind a filter of its own would. It is an Envoy without an upstream,
    which is the cheapest application with steady response times.
    """
    answer = {"status": 200, "body": {"inline_string": "x" * BODY_BYTES}}
    added = [
        {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for key, value in ANSWERED.items()
    ]
    hosts = [
        {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": answer}]}
    ]
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "application",
        "route_config": {"virtual_hosts": hosts, "response_headers_to_add": added},
        "http_filters": [router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [{"name": "app", "address": address(port), "filter_chains": [chain]}]
        },
    }
