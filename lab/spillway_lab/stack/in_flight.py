"""Requests that users wait for, as the Envoys at the clusters' entries count them."""

import httpx

from spillway_lab.render.pods import HOST, Plan
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import local_http

# The inbound listener's stat_prefix in infra/envoy/pod.yaml.
_STAT = "http.inbound.downstream_rq_active"


def in_flight(plan: Plan) -> int:
    """Returns the number of requests at all entries. Raises LabError when an Envoy is away."""
    total = 0
    for pod in plan.pods:
        if pod.edge:
            url = f"http://{HOST}:{pod.admin_port}/stats?format=json&filter=^{_STAT}$"
            try:
                stats = local_http.get(url).json()["stats"]
            except (httpx.HTTPError, ValueError, KeyError) as error:
                raise LabError(f"{pod.name}: Envoy's admin page at port {pod.admin_port}: {error}") from error
            total += sum(int(stat["value"]) for stat in stats if stat.get("name") == _STAT)
    return total
