"""The native simulation of a scenario, in the units of the lab."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from spillway_simulator import Simulation

from spillway_lab.scenario.loads import CLIENT_TIMEOUT_S, Segment
from spillway_lab.simulator import native_form
from spillway_lab.simulator.indices import check
from spillway_lab.simulator.world import World


@dataclass(frozen=True)
class Counts:
    """What was counted since the last reading."""

    seconds: float
    arrived: np.ndarray  # [endpoint, cluster]
    served: np.ndarray
    failed: np.ndarray
    own_s: np.ndarray  # seconds of waiting and of service, summed over the served
    hits: np.ndarray  # of the served, those whose key was cached
    calls: np.ndarray  # [route, from, to]
    bytes: np.ndarray  # [from, to]


@dataclass(frozen=True)
class Answers:
    """How calls of one route to one destination ended since the last reading."""

    route: int
    source: int
    destination: int
    bucket: int  # latencies of up to 1.04^bucket microseconds; FAILED: none
    calls: int
    seconds: float  # that they took, summed


FAILED = -1


@dataclass(frozen=True)
class Ended:
    """Requests of users that have ended, in columns."""

    at_s: np.ndarray
    latency_ms: np.ndarray
    ok: np.ndarray
    cluster: np.ndarray
    kind: np.ndarray


class Engine:
    """Runs the scenario of a world. Raises InvalidInput for what cannot be simulated."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.indices = world, world.indices
        scenario = self.indices.scenario
        check(scenario)
        self._read_at, self.now_s = 0.0, 0.0
        index = self.indices
        self._simulation = Simulation(
            clusters=len(index.clusters),
            services=native_form.services(world),
            endpoints=native_form.endpoints(index),
            routes=len(index.routes),
            kinds=native_form.kinds(index),
            keys=native_form.keys(index),
            call_timeout_s=scenario.application.call_timeout_ms / 1000,
            user_timeout_s=CLIENT_TIMEOUT_S,
            seed=seed,
        )
        self.follow_links()

    def load(self, load: dict[str, list[Segment]], poisson: bool) -> None:
        """Sets the load of every cluster from now on."""
        pieces = [[(s.seconds, s.rps, s.to_rps) for s in load.get(c, [])] for c in self.indices.clusters]
        self._simulation.set_load(pieces, poisson)

    def replay(self, requests: Mapping[str, Sequence[tuple[float, int]]]) -> None:
        """Sets the requests of every cluster: seconds, ascending, and kinds of the scenario."""
        self._simulation.set_requests([list(requests.get(c, [])) for c in self.indices.clusters])

    def follow_links(self) -> None:
        """Makes the round trips between clusters those of the world."""
        self._simulation.set_round_trips((self.world.rtt_ms.ravel() / 1000).tolist())

    def set_weights(self, weights: list[float]) -> None:
        self._simulation.set_weights(weights)

    def follow_place(self, service: str, cluster: str) -> None:
        """Makes a service's pods in a cluster those of the world."""
        s, c = self.indices.services.index(service), self.indices.clusters.index(cluster)
        world, place = self.world, (service, cluster)
        self._simulation.set_pods(s, c, world.pods[place])
        self._simulation.set_workers(s, c, world.workers[place])
        self._simulation.set_state(
            s, c, speed=world.speed[place], error_rate=world.error_rate[place],
            available=world.available[place], delay_s=world.delay_ms[place] / 1000,
            delay_share=world.delay_share[place],
        )  # fmt: skip

    def run(self, until_s: float) -> None:
        """Runs until this second; infinite: until nothing is left to happen."""
        self._simulation.run(until_s)
        self.now_s = until_s

    @property
    def happened(self) -> int:
        return self._simulation.happened

    def busy_seconds(self) -> np.ndarray:
        """Returns the seconds of work of all workers since the start, [service, cluster]."""
        shape = len(self.indices.services), len(self.indices.clusters)
        return np.frombuffer(self._simulation.busy_seconds()).reshape(shape)

    def counts(self) -> Counts:
        index, found = self.indices, dict(self._simulation.take_counts())
        places, between = (len(index.classes), len(index.clusters)), (len(index.clusters),) * 2
        shapes = {"calls": (len(index.routes), *between), "bytes": between}
        arrays = {
            name: np.frombuffer(data).reshape(shapes.get(name, places))
            for name, data in found.items()
            if name != "waited_s"
        }
        seconds, self._read_at = self.now_s - self._read_at, self.now_s
        return Counts(seconds, **arrays)

    def watch_answers(self) -> None:
        """Counts from now on how calls end."""
        self._simulation.watch_outcomes()

    def answers(self) -> list[Answers]:
        return [Answers(*row) for row in self._simulation.take_outcomes()]

    def ended(self) -> Ended:
        at_s, latency_s, ok, cluster, kind = self._simulation.take_ended()
        small = [np.frombuffer(column, np.uint8) for column in (ok, cluster, kind)]
        latency_ms = np.frombuffer(latency_s) * 1000
        return Ended(np.frombuffer(at_s), latency_ms, small[0].astype(bool), small[1], small[2])
