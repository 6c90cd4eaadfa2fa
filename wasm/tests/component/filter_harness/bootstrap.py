"""Builds the bootstrap of an Envoy with an outbound and an inbound listener, as two pods have
them."""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from filter_harness.parts import TYPES, address, class_route, cluster

ROOT = Path(__file__).resolve().parents[4]
WASM = Path(os.environ.get("SPILLWAY_FILTER_WASM", ROOT / ".spillway/wasm/spillway_filter.wasm"))
POD = ROOT / "infra/envoy/pod.yaml"
CLASS = "cart GET /users/{id}"
CLASSES = (CLASS, "cart GET /items/{id}", "cart POST /orders")
NODE = "east/cart/cart-1"
IDENTITIES = {"inbound": ("east", "cart"), "outbound": ("west", "front")}


@dataclass(frozen=True)
class Setup:
    """Settings that differ between tests."""

    overrides: dict | None = field(default_factory=dict)
    """Merged into both filters' configuration; None: no filter at all."""
    edge: bool = False
    """The inbound listener believes nothing that a request says of itself."""
    peer_identity: str | None = None
    tls: dict | None = None
    """Transport socket of the inbound listener."""
    concurrency: int = 2
    http2: bool = False
    """HTTP/2 to the application and between the listeners, as gRPC needs it."""
    classes: tuple[str, ...] = CLASSES
    retries: int = 0
    timeout: str = "0s"
    listeners: Path | None = None
    """The listeners come from this file, which the test may rewrite."""


def pod_stats_config() -> dict:
    """Returns the `stats_config` that every pod has.

    Its part of the template has no placeholders.
    """
    filled = re.sub(r"\$\{\w+\}", "0", POD.read_text())
    return yaml.safe_load(filled)["stats_config"]


def wasm_filter(configuration: dict) -> dict:
    """Returns Envoy's HTTP filter that runs the Wasm module with this configuration."""
    name = f"spillway-{configuration.get('direction')}"
    vm = {"vm_id": "spillway", "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": str(WASM)}}}
    value = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": json.dumps(configuration)}
    config = {
        "name": name,
        "root_id": name,
        "failure_policy": "FAIL_OPEN",
        "vm_config": vm,
        "configuration": value,
    }
    typed = {"@type": f"{TYPES}.filters.http.wasm.v3.Wasm", "config": config}
    return {"name": "spillway", "typed_config": typed}


def filters(side: str, setup: Setup) -> list[dict]:
    """Returns the Wasm filter of one side, or nothing where the setup has no filter."""
    if setup.overrides is None:
        return []
    cluster_name, service = IDENTITIES[side]
    settings = {"direction": side, "cluster": cluster_name, "service": service, "flush_interval_ms": 200}
    if side == "inbound":
        settings["edge"] = setup.edge
        if setup.peer_identity is not None:
            settings["peer_identity"] = setup.peer_identity
    return [wasm_filter({**settings, **setup.overrides})]


def routes(target: str, metadata: dict, setup: Setup) -> list[dict]:
    """Returns the routes of one listener in matching order.

    CONNECT comes first and ends at the inbound side. Then there is one route per class, as the
    relay serves them, and last the catch-all.
    """
    inbound = target == "spillway-app"
    action = {
        "weighted_clusters": {"clusters": [{"name": target, "weight": 10000}]},
        "timeout": "0s" if inbound else setup.timeout,  # the caller's proxy bounds the request
    }
    if setup.retries and not inbound:
        action["retry_policy"] = {"retry_on": "5xx,reset,connect-failure", "num_retries": setup.retries}
        action["retry_policy"]["retry_back_off"] = {"base_interval": "0.001s"}
    connect = {**action, "upgrade_configs": [{"upgrade_type": "CONNECT"}]}
    if inbound:
        connect["upgrade_configs"][0]["connect_config"] = {}
    catch_all = {"name": "other", "match": {"prefix": "/"}, "route": action}
    tunnel = {"name": "other", "match": {"connect_matcher": {}}, "route": connect}
    return [tunnel, *(class_route(name, action, metadata) for name in setup.classes), catch_all]


def listener(side: str, port: int, target: str, metadata: dict, setup: Setup) -> dict:
    """Returns the listener of one side, which routes to the cluster `target`."""
    host = {"name": "all", "domains": ["*"], "routes": routes(target, metadata, setup)}
    if side == "outbound":
        host["include_request_attempt_count"] = True
    router = {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": target.replace("|", "_"),
        "route_config": {"virtual_hosts": [host]},
        "upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}],
        "http2_protocol_options": {"allow_connect": True},
        "http_filters": [*filters(side, setup), router],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    if side == "inbound" and setup.tls is not None:
        chain["transport_socket"] = setup.tls
    type_url = "type.googleapis.com/envoy.config.listener.v3.Listener"
    return {"@type": type_url, "name": side, "address": address(port), "filter_chains": [chain]}


def bootstrap(
    setup: Setup, admin: int, inbound: int, outbound: int, app: int, collector: int
) -> tuple[dict, list]:
    """Returns the bootstrap and the listeners.

    The bootstrap contains the listeners, or reads them from `setup.listeners` if that is set.
    """
    ruleset = {"filter_metadata": {"spillway": {"ruleset_version": 42, "input_window": "w1"}}}
    listeners = [
        listener("inbound", inbound, "spillway-app", {}, setup),
        # The routed cluster name says "north", but the cluster that answers is "east", as after a
        # failover.
        listener("outbound", outbound, "cart|north", ruleset, setup),
    ]
    clusters = [
        cluster("spillway-app", app, setup.http2),
        cluster("cart|north", inbound, setup.http2),
        cluster("spillway-collector", collector, http2=True),
    ]
    config = {"admin": {"address": address(admin)}, "static_resources": {"clusters": clusters}}
    config["stats_config"] = pod_stats_config()
    config["node"] = {"id": NODE, "cluster": "cart"}
    if setup.listeners is None:
        static = [{k: v for k, v in entry.items() if k != "@type"} for entry in listeners]
        config["static_resources"]["listeners"] = static
    else:
        source = {"path_config_source": {"path": str(setup.listeners)}, "resource_api_version": "V3"}
        config["dynamic_resources"] = {"lds_config": source}
    return config, listeners
