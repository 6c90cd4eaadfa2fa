"""Builds proposals, and a topology of three clusters in which only one links to the third."""

import time

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPTIMIZER, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class

CLASS = "shop GET /items/{id}"


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    for name in ("north", "south", "island"):
        topology.clusters.add(name=name, region=name)
    for source, destination in (("north", "south"), ("south", "north"), ("north", "island")):
        topology.links.add(source_cluster=source, destination_cluster=destination, rtt_ms=10)
    shop = topology.services.add(name="shop")
    for name in ("north", "south"):
        shop.placements.add(cluster=name)
    topology.services.add(name="archive").placements.add(cluster="island")
    return topology


@pytest.fixture
def topology_yaml() -> str:
    return """
usd_per_ms_per_million_requests: 0.1
clusters: [{name: north}, {name: south}, {name: island}]
links:
  - {source_cluster: north, destination_cluster: south, rtt_ms: 10}
  - {source_cluster: south, destination_cluster: north, rtt_ms: 10, egress_usd_per_gb: 0.02}
  - {source_cluster: north, destination_cluster: island, rtt_ms: 10}
services:
  - {name: shop, placements: [{cluster: north}, {cluster: south}]}
"""


@pytest.fixture
def make():
    """make({source cluster: {destination: weight}}, ...) -> a proposal with one rule per source."""

    def build(
        rules: dict[str, dict[str, int]], *, class_id: str = CLASS, now_ns: int | None = None, **fields
    ):
        now_ns = now_ns or time.time_ns()
        proposal = Ruleset(id=f"p-{now_ns}-{build.count}", origin=ORIGIN_OPTIMIZER, policy="spillway")
        build.count += 1
        proposal.input_window.id = "w-1"
        proposal.created_at.FromNanoseconds(now_ns)
        proposal.expires_at.FromNanoseconds(now_ns + 120 * 10**9)
        proposal.traffic_classes.append(traffic_class.parse(class_id))
        for source, weights in rules.items():
            rule = proposal.rules.add(source_cluster=source, source_service="web", reason="cheapest")
            rule.traffic_class.CopyFrom(traffic_class.parse(class_id))
            for cluster, weight in weights.items():
                rule.destinations.add(cluster=cluster, weight=weight, predicted_compute_ms=weight / 100)
        for key, value in fields.items():
            setattr(proposal, key, value)
        return proposal

    build.count = 0
    return build
