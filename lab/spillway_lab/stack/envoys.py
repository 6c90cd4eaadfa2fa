"""The routes that the pods' Envoys have in force, from their admin pages."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from spillway_contracts import names

from spillway_lab.render.pods import HOST, Pod
from spillway_lab.stack import local_http


class Routes(NamedTuple):
    """Routes in force: since when, in Unix seconds, and the JSON of the xDS message."""

    since_s: float
    config: dict


def outbound_routes(pod: Pod) -> dict | None:
    """Returns the outbound RouteConfiguration in force as JSON of the xDS message.

    Returns None before there is one.
    """
    found = outbound(pod)
    return found.config if found else None


def outbound(pod: Pod) -> Routes | None:
    """Returns the outbound routes in force, and since when; None before there are any."""
    url = f"http://{HOST}:{pod.admin_port}/config_dump?resource=dynamic_route_configs"
    for entry in local_http.get(url).json().get("configs", []):
        if entry.get("route_config", {}).get("name") == names.XDS_OUTBOUND_ROUTE:
            return Routes(datetime.fromisoformat(entry["last_updated"]).timestamp(), entry["route_config"])
    return None


def share_away(route_config: dict, cluster: str) -> float:
    """Returns the largest share that a route sends to clusters other than `cluster`, 0 to 1."""
    shares = [0.0]
    for route in _routes(route_config):
        by_cluster = [
            (entry["name"].split(names.XDS_CLUSTER_SEPARATOR)[1], entry.get("weight", 0))
            for entry in _entries(route)
        ]
        if total := sum(weight for _, weight in by_cluster):
            shares.append(sum(weight for found, weight in by_cluster if found != cluster) / total)
    return max(shares)


def version(route_config: dict) -> int:
    """Returns the newest ruleset version that a route names; 0 without any."""
    named = [
        route.get("metadata", {}).get("filter_metadata", {}).get(names.XDS_METADATA_NAMESPACE, {})
        for route in _routes(route_config)
    ]
    return max((int(fields.get("ruleset_version", 0)) for fields in named), default=0)


def _routes(route_config: dict) -> Iterator[dict]:
    for host in route_config.get("virtual_hosts", []):
        yield from host.get("routes", [])


def _entries(route: dict) -> list[dict]:
    return route.get("route", {}).get("weighted_clusters", {}).get("clusters", [])


def weights(route_config: dict, service: str) -> dict[str, dict[str, int]]:
    """Returns route name -> destination cluster -> weight for one destination service."""
    found: dict[str, dict[str, int]] = {}
    for route in _routes(route_config):
        for entry in _entries(route):
            destination, cluster = entry["name"].split(names.XDS_CLUSTER_SEPARATOR)[:2]
            if destination == service:
                found.setdefault(route["name"], {})[cluster] = entry.get("weight", 0)
    return found
