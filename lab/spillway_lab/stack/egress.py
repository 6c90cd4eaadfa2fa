"""Traffic between clusters in bytes and money, from the counters of the pods' Envoys.

All traffic between clusters passes through Toxiproxy. But Toxiproxy counts a connection's bytes
only when it closes, and Envoy keeps connections open. Envoy's own connection counters do not come
from Spillway's telemetry. Traffic that Envoy diverts because a destination is dead counts for that
destination.

An Envoy cluster that spans all clusters (`render.load_aware`) has no connection counters by
cluster. Its bytes are those of the requests on its connections, counted by the cluster of the
endpoint that had the request (`render.outbound`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx
from spillway_contracts import names

from spillway_lab.render import outbound
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import local_http

_GB = 1e9  # clouds bill decimal gigabytes
_SEPARATOR = re.escape(names.XDS_CLUSTER_SEPARATOR)
_COUNTER = re.compile(
    rf"cluster\.[^.]+?{_SEPARATOR}(?P<cluster>[^.|]+)(?:{_SEPARATOR}[^.]+)?\.upstream_cx_(?P<way>tx|rx)_bytes_total"
)
_WIRE_COUNTER = re.compile(rf"{outbound.WIRE}\.(?P<way>tx|rx)_bytes_total\.cluster\.(?P<cluster>.+)")
_FILTER = "(upstream_cx_[tr]x_bytes_total$|" + outbound.WIRE + ")"
# The value of a wire counter's tag for requests whose endpoint names no cluster.
_NO_CLUSTER = "-"

Pair = tuple[str, str]  # (from, to): the direction of the bytes


@dataclass(frozen=True)
class Egress:
    """Traffic between clusters during a measured time."""

    bytes_by_pair: Mapping[Pair, float]
    usd_per_hour: float


def prices(scenario: Scenario) -> dict[Pair, float]:
    """Returns US dollars per GB by direction.

    Where only one direction of a pair is linked, the reverse direction costs the same.
    """
    given = {
        (link.source_cluster, link.destination_cluster): link.egress_usd_per_gb for link in scenario.links()
    }
    return {pair[::-1]: price for pair, price in given.items()} | given


def read(pods: Iterable[Pod]) -> dict[Pair, float]:
    """Returns the bytes that all pods' Envoys exchanged with other clusters since they started.

    Raises LabError when an Envoy's admin page cannot be read.
    """
    total: dict[Pair, float] = {}
    for pod in pods:
        url = f"http://{HOST}:{pod.admin_port}/stats?format=json&filter={quote(_FILTER)}"
        try:
            text = local_http.get(url).text
        except httpx.HTTPError as error:
            raise LabError(f"{pod.name}: Envoy's admin page at port {pod.admin_port}: {error}") from error
        for pair, count in parse(text, pod.cluster).items():
            total[pair] = total.get(pair, 0.0) + count
    return total


def parse(text: str, cluster: str) -> dict[Pair, float]:
    """Returns bytes by direction from the stats of an Envoy in `cluster`.

    Traffic inside the cluster is left out.
    """
    found: dict[Pair, float] = {}
    for stat in json.loads(text)["stats"]:
        name = stat.get("name", "")
        counter = _COUNTER.fullmatch(name) or _WIRE_COUNTER.fullmatch(name)
        if counter is None or counter["cluster"] in (cluster, _NO_CLUSTER):
            continue
        pair = (cluster, counter["cluster"]) if counter["way"] == "tx" else (counter["cluster"], cluster)
        found[pair] = found.get(pair, 0.0) + stat["value"]
    return found


def between(
    before: Mapping[Pair, float], after: Mapping[Pair, float], price: Mapping[Pair, float], seconds: float
) -> Egress:
    """Returns bytes and cost between two readings that are `seconds` apart.

    A counter that went down was restarted in between. Its new value is then all that is known.
    """
    grown = {
        pair: now - before.get(pair, 0.0) if now >= before.get(pair, 0.0) else now
        for pair, now in after.items()
    }
    usd = sum(count / _GB * price[pair] for pair, count in grown.items())
    return Egress(grown, usd * 3600 / seconds)
