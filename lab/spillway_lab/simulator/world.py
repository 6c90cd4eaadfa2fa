"""What holds at the moment: delays, pods and their state. Events change it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from spillway_lab.scenario.events import Event, LinkChange
from spillway_lab.simulator.indices import Indices

Place = tuple[str, str]  # (service, cluster)


@dataclass
class World:
    """The scenario's state, by (service, cluster) where nothing else is said."""

    indices: Indices
    rtt_ms: np.ndarray = field(init=False)  # [from, to]; 0 within a cluster, infinite without a link
    pods: dict[Place, int] = field(init=False)
    # Fewest pods of the last minutes, where an autoscaler changes them.
    settled: dict[Place, int] = field(default_factory=dict)
    workers: dict[Place, int] = field(init=False)  # of each pod
    speed: dict[Place, float] = field(init=False)
    error_rate: dict[Place, float] = field(init=False)
    available: dict[Place, bool] = field(init=False)
    delay_ms: dict[Place, float] = field(init=False)
    delay_share: dict[Place, float] = field(init=False)  # of answers that are delayed

    def __post_init__(self) -> None:
        index, scenario = self.indices, self.indices.scenario
        places = [(service, cluster) for service in index.services for cluster in index.clusters]
        self.rtt_ms = np.full((len(index.clusters),) * 2, np.inf)
        np.fill_diagonal(self.rtt_ms, 0.0)
        for link in scenario.links():
            self.rtt_ms[self._pair(link.source_cluster, link.destination_cluster)] = link.rtt_ms
        self.pods = {place: index.pods(*place) for place in places}
        self.workers = {(s, c): scenario.application_of(c).services[s].workers for s, c in places}
        self.speed, self.error_rate = dict.fromkeys(places, 1.0), dict.fromkeys(places, 0.0)
        self.available, self.delay_ms = dict.fromkeys(places, True), dict.fromkeys(places, 0.0)
        self.delay_share = dict.fromkeys(places, 1.0)

    def change(self, event: Event) -> list[Place]:
        """Applies an event. Returns the services and clusters whose pods have changed."""
        if event.link is not None:
            self._change_link(event.link)
        if event.replicas is not None:
            place = event.replicas.service, event.replicas.cluster
            self.pods[place] = event.replicas.pods
            return [place]
        if event.service is not None:
            place = event.service.service, event.service.cluster
            for key, value in event.service.state().items():
                getattr(self, key)[place] = value
            return [place]
        return []

    def _change_link(self, change: LinkChange) -> None:
        for link in self.indices.scenario.links():
            if change.changes(link.source_cluster, link.destination_cluster):
                self.rtt_ms[self._pair(link.source_cluster, link.destination_cluster)] = change.after(link)

    def _pair(self, source: str, destination: str) -> tuple[int, int]:
        return self.indices.clusters.index(source), self.indices.clusters.index(destination)


def not_simulated(events: list[Event]) -> Iterator[str]:
    """Yields a problem for each event that a simulation cannot have."""
    for i, event in enumerate(events):
        if event.cluster is not None:
            yield f"events[{i}].cluster: not simulated; allowed in simulations: link, service, replicas"
