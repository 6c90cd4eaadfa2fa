"""`envoy-load-aware`: Envoy balances between clusters by itself, by `load_aware_locality`. Pure.

The policy is Envoy's own (docs/adr/0051). Each service that a pod calls has one Envoy cluster, with
a locality for each cluster where the service is placed. Answers carry the pods' load (ORCA). All
else is as in the relay's Envoy clusters: connections, ejections, checks. `outbound` puts these
Envoy clusters into a bootstrap. Their endpoints are in a file that Envoy reads again when it is
replaced:

envoy/<pod>/endpoints.yaml   endpoints of the services that the pod calls
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spillway_lab.render import as_relay
from spillway_lab.scenario.application import Application

NAME: Final = "envoy-load-aware"
ENDPOINTS_FILE = "endpoints.yaml"
# Window of the pods' load reports, in ms: the period at which Envoy reads them.
REPORT_WINDOW_MS = 1000.0
# Key of an endpoint's metadata that holds its cluster.
METADATA = "spillway_lab"
_MESSAGES = "type.googleapis.com/envoy.extensions.load_balancing_policies"


@dataclass(frozen=True)
class Place:
    """A service's endpoints in one cluster, as an Envoy reaches them.

    `rtt_ms` is the round-trip time to that cluster; 0 for the Envoy's own.
    """

    cluster: str
    addresses: tuple[tuple[str, int], ...]  # host, port
    rtt_ms: float


def called_by(application: Application, service: str) -> list[str]:
    """Returns the services that a service calls, sorted."""
    endpoints = application.services[service].endpoints
    return sorted({call.service for endpoint in endpoints for stage in endpoint.calls for call in stage})


def cluster_name(service: str) -> str:
    """Returns the name of a service's Envoy cluster.

    The name has no separator, so the filter reads no destination from it. Answers name their
    cluster.
    """
    return f"load-aware/{service}"


def cluster(service: str, places: Sequence[Place], folder: str) -> dict:
    """Returns a service's Envoy cluster, with its endpoints in the file in `folder`.

    Only endpoints in other clusters are checked (`assignments`).
    """
    farthest = max(place.rtt_ms for place in places)
    source = {"resource_api_version": "V3", "path_config_source": {"path": f"{folder}/{ENDPOINTS_FILE}"}}
    return {
        "name": cluster_name(service),
        "type": "EDS",
        "eds_cluster_config": {"eds_config": source},
        "connect_timeout": as_relay.connect_timeout(farthest),
        # The policy's documented defaults. Only the choice within a locality has no default. It is
        # the relay's.
        "load_balancing_policy": _policies(
            "load_aware_locality.v3.LoadAwareLocality",
            {"endpoint_picking_policy": _policies("least_request.v3.LeastRequest", {})},
        ),
        "health_checks": [as_relay.check(service)],
        **copy.deepcopy(as_relay.SETTINGS),
    }


def assignments(called: Mapping[str, Sequence[Place]], own: str) -> dict:
    """Returns the content of the file of endpoints, by service, for pods in the cluster `own`."""
    return {
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": cluster_name(service),
                "endpoints": [_locality(place, checked=place.cluster != own) for place in places],
            }
            for service, places in called.items()
        ]
    }


def _policies(message: str, settings: dict) -> dict:
    """A LoadBalancingPolicy with one policy, given by its message, such as `random.v3.Random`."""
    policy = {
        "name": f"envoy.load_balancing_policies.{message.split('.')[0]}",
        "typed_config": {"@type": f"{_MESSAGES}.{message}"} | settings,
    }
    return {"policies": [{"typed_extension_config": policy}]}


def _locality(place: Place, checked: bool) -> dict:
    """A locality. Envoy prefers the one that equals its node's locality, which has only a zone."""
    endpoints = []
    for host, port in place.addresses:
        endpoint: dict = {"address": {"socket_address": {"address": host, "port_value": port}}}
        if not checked:
            endpoint["health_check_config"] = {"disable_active_health_check": True}
        metadata = {"filter_metadata": {METADATA: {"cluster": place.cluster}}}
        endpoints.append({"endpoint": endpoint, "metadata": metadata})
    return {"locality": {"zone": place.cluster}, "lb_endpoints": endpoints}
