"""Declared autoscalers, and how long each has been expected to add a pod. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spillway.v1.topology_pb2 import Autoscaler, Topology

Place = tuple[str, str]  # (service, cluster)

# An autoscaler that added no pod in time is expected to again after so many times that time.
_REST = 4.0


def declared(topology: Topology) -> Mapping[Place, Autoscaler]:
    """Returns the autoscalers that the topology declares, by (service, cluster)."""
    return {
        (service.name, placement.cluster): placement.autoscaler
        for service in topology.services
        for placement in service.placements
        if placement.HasField("autoscaler")
    }


@dataclass(frozen=True)
class Wait:
    """A pod is expected beyond `pods` of them, since Unix second `since`."""

    pods: int
    since: float
    patience_s: float

    def gave_up(self, now: float) -> bool:
        """Returns whether the pod is late, and not expected again yet."""
        return self.patience_s <= now - self.since and not self.ended(now)

    def ended(self, now: float) -> bool:
        return now - self.since >= (1 + _REST) * self.patience_s


@dataclass(frozen=True)
class ScaleOuts:
    """The scale-outs that are expected, by (service, cluster)."""

    waits: Mapping[Place, Wait] = field(default_factory=dict)

    def gave_up(self, place: Place, now: float) -> bool:
        """Returns whether no pod is expected any more, because none came in time."""
        return place in self.waits and self.waits[place].gave_up(now)

    def after(
        self, expected: Collection[Place], pods: Mapping[tuple[str, str], int], now: float, patience_s: float
    ) -> "ScaleOuts":
        """Returns the state after one more reading at Unix second `now`.

        `expected`: where calls exceed what an autoscaler aims at, and it may add pods. `pods`: live
        pods by (cluster, service). One more pod than ever since a wait began ends it. A pod that
        restarts does not, and neither does a number of pods that is unknown.
        """
        waits = {}
        for place in {*expected, *self.waits}:
            last, live = self.waits.get(place), pods.get((place[1], place[0]))
            more = last is None or (live is not None and live > last.pods)
            if last is not None and not (more or last.ended(now)):
                if place in expected or last.gave_up(now):
                    waits[place] = last
            elif place in expected and live is not None:
                waits[place] = Wait(live, now, patience_s)
        return ScaleOuts(waits)


NONE_EXPECTED = ScaleOuts()
