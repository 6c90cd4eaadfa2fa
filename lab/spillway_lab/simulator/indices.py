"""A scenario as the simulator's indices. Pure.

Services and endpoints are numbered in the application's order, clusters in the scenario's. A route
is a pair of a calling service and a called endpoint, as a rule of a ruleset is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spillway_lab.scenario import flows
from spillway_lab.scenario.application import Application, Endpoint
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.flows import Work
from spillway_lab.scenario.scenario import Scenario

Weights = Mapping[tuple[str, str, str], Mapping[str, float]]  # (cluster, service, class) -> cluster


@dataclass(frozen=True)
class Indices:
    """Names by index."""

    scenario: Scenario

    @property
    def application(self) -> Application:
        return self.scenario.application

    @cached_property
    def clusters(self) -> list[str]:
        return self.scenario.clusters

    @cached_property
    def services(self) -> list[str]:
        return list(self.application.services)

    @cached_property
    def classes(self) -> list[str]:
        """Class ids of all endpoints, such as "shop GET /items/{id}"."""
        return [endpoint.class_id(service) for service, endpoint in self.endpoints()]

    @cached_property
    def routes(self) -> list[tuple[str, str]]:
        """(calling service, class) of every route, each once."""
        found = {
            (service, call.class_id): None
            for service, endpoint in self.endpoints()
            for stage in endpoint.calls
            for call in stage
        }
        return list(found)

    @cached_property
    def work(self) -> dict[str, Work]:
        """Work of every service's mix of requests. Services without requests are left out."""
        document = self.scenario.document
        by_class = flows.rates(self.application, document.requests, document.shares())
        found = {name: flows.work(self.application, name, by_class) for name in self.services}
        return {name: work for name, work in found.items() if work is not None}

    @cached_property
    def variables(self) -> list[str]:
        """Path variables whose values are keys of caches, each once."""
        return list({e.cache.key: None for _, e in self.endpoints() if e.cache})

    def endpoints(self) -> Iterator[tuple[str, Endpoint]]:
        """Yields (service, endpoint), in the order of the classes."""
        for name, service in self.application.services.items():
            for endpoint in service.endpoints:
                yield name, endpoint

    def pods(self, service: str, cluster: str) -> int:
        """Pods of a service in a cluster; 0 where it is not placed."""
        placed = self.scenario.document.placement.get(service, {}).get(cluster)
        return placed.pods if placed else 0

    def tiers(self, service: str, source: str) -> list[str]:
        """Returns the clusters that calls for a service can go to, nearest first.

        Those are the caller's own cluster and the clusters that it has a link to, if the service
        is placed there. The order is that of the relay (rule-publisher/relay/internal/table).
        """
        rtt_ms = {
            link.destination_cluster: link.rtt_ms
            for link in self.scenario.links()
            if link.source_cluster == source
        } | {source: 0.0}
        placed = [cluster for cluster in self.clusters if cluster in rtt_ms and self.pods(service, cluster)]
        return sorted(placed, key=lambda cluster: (cluster != source, rtt_ms[cluster], cluster))

    def weights(self, rules: Weights) -> list[float]:
        """Returns weights [route, from, to], as the relay makes them of rules.

        A rule's share of a cluster that calls cannot go to falls to its others. Without a rule, or
        where none of its clusters is left, calls go to the nearest. A row of zeros has nowhere to
        go, and its calls fail.
        """
        found = np.zeros((len(self.routes), len(self.clusters), len(self.clusters)))
        service_of = {endpoint.class_id(service): service for service, endpoint in self.endpoints()}
        for r, (service, called) in enumerate(self.routes):
            for i, source in enumerate(self.clusters):
                tiers = self.tiers(service_of[called], source)
                rule = rules.get((source, service, called), {})
                kept = {cluster: weight for cluster, weight in rule.items() if weight and cluster in tiers}
                for cluster, weight in (kept or dict.fromkeys(tiers[:1], 1.0)).items():
                    found[r, i, self.clusters.index(cluster)] = weight
        return found.ravel().tolist()


def check(scenario: Scenario) -> None:
    """Raises InvalidInput that names every part of an application that is not simulated yet."""
    if problems := list(_problems(Indices(scenario))):
        raise InvalidInput([f"{scenario.name}: {problem}" for problem in problems])


def _problems(index: Indices) -> Iterator[str]:
    called = dict(zip(index.classes, (endpoint for _, endpoint in index.endpoints()), strict=True))
    for service, endpoint in index.endpoints():
        where = f"services.{service}.endpoints[{endpoint}]"
        for call in (call for stage in endpoint.calls for call in stage):
            if call.class_id in called:
                new = [v for v in called[call.class_id].variables if v not in endpoint.variables]
                for variable in (v for v in new if v in index.variables):
                    yield (
                        f"{where}.calls: {call.class_id} has the key {variable!r} of a cache, which this path "
                        "does not hand on; allowed in simulations: a path that has it"
                    )
            else:
                allowed = ", ".join(map(str, index.application.services[call.service].endpoints))
                yield (
                    f"{where}.calls: {call.method} {call.path} of {call.service!r} is no endpoint of it; "
                    f"allowed in simulations, word for word: {allowed}"
                )
