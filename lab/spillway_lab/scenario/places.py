"""Where a scenario happens: clusters, the network between them, and the services' placement."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from spillway_lab.scenario.application import Model, Override, Positive

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Matrix = dict[str, dict[str, NotNegative]]  # source cluster -> destination cluster -> value


class Cluster(Model):
    region: str
    # settings of services that differ in this cluster
    services: dict[str, Override] = Field(default_factory=dict)


class Link(Model):
    source_cluster: str
    destination_cluster: str
    both_ways: bool = False
    rtt_ms: NotNegative
    egress_usd_per_gb: NotNegative


class Placement(Model):
    pods: Annotated[int, Field(ge=1)] = 1
    # static threshold of the Waterfall policy, for all the cluster's pods together; None: that of
    # a careful operator, see Scenario.threshold_rps
    threshold_rps: NotNegative | None = None


class Request(Model):
    """One kind of request that users send, and its share of all requests."""

    service: str
    method: str
    path: str
    request_bytes: Annotated[int, Field(ge=0)] = 0
    share: Positive = 1.0
    # of the users of a cluster, where it differs
    share_by_cluster: dict[str, NotNegative] = Field(default_factory=dict)

    @property
    def class_id(self) -> str:
        """Its class, such as "shop GET /items/{id}"."""
        return f"{self.service} {self.method} {self.path}"

    def share_in(self, cluster: str) -> float:
        """Returns its part of a cluster's requests, relative to the parts of the others."""
        return self.share_by_cluster.get(cluster, self.share)


def directed(links: list[Link], rtt_ms: Matrix, egress: float | Matrix) -> list[Link]:
    """Returns links in one direction each: those of `links`, then those of the matrix `rtt_ms`.

    A link with `both_ways` gives two. A pair of clusters that `rtt_ms` has once is a link in both
    directions. `egress` is the price in US dollars per GB of all of the matrix's links, or their
    prices as a matrix of its own, in which a pair also counts for both directions.
    """
    found = []
    for link in links:
        found.append(link)
        if link.both_ways:
            back = {"source_cluster": link.destination_cluster, "destination_cluster": link.source_cluster}
            found.append(link.model_copy(update=back))
    for source, destination in _pairs(rtt_ms):
        price = _either_way(egress, source, destination) if isinstance(egress, Mapping) else egress
        rtt = _either_way(rtt_ms, source, destination)
        found.append(
            Link(source_cluster=source, destination_cluster=destination, rtt_ms=rtt, egress_usd_per_gb=price)
        )
    return found


def network_problems(
    clusters: list[str], links: list[Link], rtt_ms: Matrix, egress: float | Matrix | None
) -> Iterator[str]:
    """Yields what is wrong with matrices: clusters, pairs that are given twice, missing prices."""
    matrices = {"rtt_ms": rtt_ms} | ({"egress_usd_per_gb": egress} if isinstance(egress, Mapping) else {})
    for key, matrix in matrices.items():
        for source, row in matrix.items():
            yield from _cluster_problems(key, source, clusters)
            for destination in row:
                yield from _cluster_problems(f"{key}.{source}", destination, clusters)
                if source == destination:
                    yield f"{key}.{source}.{destination}: of a cluster to itself; allowed: two clusters"
    listed = {(link.source_cluster, link.destination_cluster) for link in directed(links, {}, 0.0)}
    for source, destination in _pairs(rtt_ms):
        if (source, destination) in listed:
            yield f"rtt_ms.{source}.{destination}: is also in links; allowed: one of both"
    if rtt_ms and egress is None:
        yield "egress_usd_per_gb: missing beside rtt_ms; allowed: a price, or prices by pair of clusters"
    if egress is not None and not rtt_ms:
        yield f"egress_usd_per_gb: {egress}; allowed only beside rtt_ms, since each of links has its price"
    if isinstance(egress, Mapping):
        for source, destination in _pairs(rtt_ms):
            if (source, destination) not in _pairs(egress):
                yield f"egress_usd_per_gb.{source}.{destination}: missing; allowed: a price for each of rtt_ms"


def _cluster_problems(key: str, cluster: str, clusters: list[str]) -> Iterator[str]:
    if cluster not in clusters:
        yield f"{key}: unknown cluster {cluster!r}; clusters: {', '.join(clusters)}"


def _pairs(matrix: Matrix) -> dict[tuple[str, str], None]:
    """Returns the directed pairs of a matrix, each with its way back, in the matrix's order."""
    pairs: dict[tuple[str, str], None] = {}
    for source, row in matrix.items():
        for destination in row:
            pairs |= {(source, destination): None, (destination, source): None}
    return pairs


def _either_way(matrix: Matrix, source: str, destination: str) -> float:
    """Returns the value of a pair, or that of its way back where only that one is given."""
    row = matrix.get(source, {})
    return row[destination] if destination in row else matrix[destination][source]
