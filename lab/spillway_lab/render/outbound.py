"""Outbound routes of a pod's Envoy that can be handed from the relay to Envoy and back. Pure.

envoy/<pod>/outbound.yaml   the routes in force: the relay's, or the same to Envoy clusters of
                            `load_aware`

Envoy reads the file again when it is replaced (`stack.balancing`). Only scenarios with the policy
`envoy-load-aware` have the file. The pods' Envoys are as in infra/envoy/pod.yaml otherwise.
"""

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spillway_contracts import names

from spillway_lab.render import load_aware

FILE = "outbound.yaml"
# Prefix of the counters of bytes by cluster: <prefix>.<tx|rx>_bytes_total.cluster.<cluster>
WIRE = "lab_wire"
# Values of names.HTTP_HEADER_ROUTES. Requests have the first, which the bootstrap sets.
IN_FORCE, _STANDBY = "relay", "standby"
_LOG = "type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config"


def bootstrap(document: Mapping[str, Any], clusters: Sequence[dict], folder: str) -> dict:
    """Returns a pod's bootstrap with these Envoy clusters and outbound routes from `folder`.

    `document` is the bootstrap of infra/envoy/pod.yaml. The outbound listener selects routes as the
    inbound one does, by a header that Envoy sets. The callee's Envoy overwrites the header.
    """
    changed = copy.deepcopy(dict(document))
    inbound, outbound = _manager(changed, "inbound"), _manager(changed, "outbound")
    scopes = copy.deepcopy(inbound["scoped_routes"]) | {"name": names.XDS_OUTBOUND_ROUTE}
    source = scopes["scoped_rds"]["scoped_rds_config_source"]
    source["path_config_source"] = {"path": f"{folder}/{FILE}"}
    early = "early_header_mutation_extensions"
    outbound |= {early: copy.deepcopy(inbound[early]), "scoped_routes": scopes}
    del outbound["rds"]
    *filters, router = copy.deepcopy(outbound["http_filters"])
    router["typed_config"]["upstream_log"] = [_wire_log()]
    outbound["http_filters"] = [*filters, router]
    changed["static_resources"]["clusters"] += clusters
    return changed


def by_relay() -> dict:
    """Returns the content of the file while the relay's routes are in force."""
    return {"resources": [_of_relay(_STANDBY), _of_relay(IN_FORCE)]}


def by_envoy(routes: Mapping[str, Any], services: Collection[str]) -> dict:
    """Returns the content of the file while Envoy balances between clusters by itself.

    `routes` is the relay's outbound RouteConfiguration. The relay's routes stay subscribed under a
    key that no request has.
    """
    inline = {"route_configuration": balanced(routes, services)}
    return {"resources": [_of_relay(_STANDBY), _scope(IN_FORCE) | inline]}


def balanced(routes: Mapping[str, Any], services: Collection[str]) -> dict:
    """Returns the routes with the destinations of these services replaced by one Envoy cluster.

    Matches, names, limits and retries stay as they are. So do routes that answer by themselves.
    `routes` may be an entry of Envoy's config_dump, which has a type.
    """
    # As for routes by xDS, a route may name an Envoy cluster that is not there. It answers 503.
    changed = copy.deepcopy(dict(routes)) | {"name": load_aware.NAME, "validate_clusters": False}
    changed.pop("@type", None)
    for host in changed.get("virtual_hosts", []):
        for route in host.get("routes", []):
            action = route.get("route", {})
            destinations = action.get("weighted_clusters", {}).get("clusters", [])
            called = {entry["name"].split(names.XDS_CLUSTER_SEPARATOR)[0] for entry in destinations}
            if len(called) == 1 and called <= set(services):
                del action["weighted_clusters"]
                action["cluster"] = load_aware.cluster_name(*called)
    return changed


def _of_relay(key: str) -> dict:
    return _scope(key) | {"route_configuration_name": names.XDS_OUTBOUND_ROUTE}


def _scope(key: str) -> dict:
    return {
        "@type": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
        "name": key,
        "key": {"fragments": [{"string_key": key}]},
    }


def _wire_log() -> dict:
    """Counts the bytes of each attempt by the cluster of its endpoint.

    Envoy's own byte counters are per Envoy cluster, which here spans all clusters. Attempts by the
    relay's routes have no such cluster. Envoy's own counters have them.
    """
    tag = {"name": "cluster", "value_format": f"%UPSTREAM_METADATA({load_aware.METADATA}:cluster)%"}
    counters = [
        {
            "stat": {"name": f"{way}_bytes_total", "tags": [tag]},
            "value_format": f"%UPSTREAM_WIRE_BYTES_{counted}%",
        }
        for way, counted in (("tx", "SENT"), ("rx", "RECEIVED"))
    ]
    config = {"@type": _LOG, "stats_scope": {"prefix": WIRE}, "counters": counters}
    return {"name": "envoy.access_loggers.stats", "typed_config": config}


def _manager(document: Mapping[str, Any], listener: str) -> dict:
    """The HTTP connection manager of a listener."""
    [found] = [entry for entry in document["static_resources"]["listeners"] if entry["name"] == listener]
    return found["filter_chains"][0]["filters"][0]["typed_config"]
