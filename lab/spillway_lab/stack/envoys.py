"""The routes that the pods' Envoys have in force, from their admin pages."""

from spillway_contracts import names

from spillway_lab.render.pods import HOST, Pod
from spillway_lab.stack import local_http


def outbound_routes(pod: Pod) -> dict | None:
    """Returns the outbound RouteConfiguration in force as JSON of the xDS message.

    Returns None before there is one.
    """
    url = f"http://{HOST}:{pod.admin_port}/config_dump?resource=dynamic_route_configs"
    for entry in local_http.get(url).json().get("configs", []):
        if entry.get("route_config", {}).get("name") == names.XDS_OUTBOUND_ROUTE:
            return entry["route_config"]
    return None


def weights(route_config: dict, service: str) -> dict[str, dict[str, int]]:
    """Returns route name -> destination cluster -> weight for one destination service."""
    found: dict[str, dict[str, int]] = {}
    for host in route_config.get("virtual_hosts", []):
        for route in host.get("routes", []):
            for entry in route.get("route", {}).get("weighted_clusters", {}).get("clusters", []):
                destination, cluster = entry["name"].split(names.XDS_CLUSTER_SEPARATOR)[:2]
                if destination == service:
                    found.setdefault(route["name"], {})[cluster] = entry.get("weight", 0)
    return found
