"""The autoscalers of a simulated round: they read the use of workers, and change pods."""

from dataclasses import dataclass

import numpy as np

from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.pod_autoscaler import PodAutoscaler
from spillway_lab.simulator.world import Place, World

_SAME = 1e-9  # seconds


@dataclass(frozen=True)
class PodCount:
    """The pods of a service in a cluster from second `at_s` on: asked for, and ready."""

    at_s: float
    service: str
    cluster: str
    wanted: int
    ready: int


class Autoscalers:
    """All autoscalers of a scenario. `counts`: each change of a number of pods, in order."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine
        self._settings = world.indices.scenario.document.autoscalers
        self._scaled = {
            place: PodAutoscaler(self._settings[place[0]], pods)
            for place, pods in world.pods.items()
            if pods and place[0] in self._settings and self._settings[place[0]].acts_in(place[1])
        }
        self._read = dict.fromkeys(self._scaled, (0.0, 0.0))  # (second, busy worker-seconds)
        self.counts: list[PodCount] = []
        world.settled = {place: world.pods[place] for place in self._scaled}

    @property
    def periods_s(self) -> list[float]:
        """Seconds between two decisions of an autoscaler, of all of them."""
        return sorted({settings.period_seconds for settings in self._settings.values()})

    def act(self, now_s: float) -> bool:
        """Decides what is due. Returns whether pods, or what is known of them, have changed."""
        busy_s = self._engine.busy_seconds() if self._scaled else np.zeros(0)
        changes = [self._act(place, scaled, busy_s, now_s) for place, scaled in self._scaled.items()]
        return any(changes)

    def _act(self, place: Place, scaled: PodAutoscaler, busy_s: np.ndarray, now_s: float) -> bool:
        before = scaled.wanted, scaled.ready
        scaled.start(now_s)
        at_s, read_s = self._read[place]
        if now_s - at_s >= self._settings[place[0]].period_seconds - _SAME:
            index = self._world.indices
            worked_s = float(busy_s[index.services.index(place[0]), index.clusters.index(place[1])])
            self._read[place] = now_s, worked_s
            scaled.decide(now_s, (worked_s - read_s) / (now_s - at_s) / self._world.workers[place])
        settled, known = scaled.settled(now_s), self._world.settled[place]
        if (scaled.wanted, scaled.ready) != before:
            self.counts.append(PodCount(now_s, *place, scaled.wanted, scaled.ready))
        if scaled.ready != self._world.pods[place]:
            self._world.pods[place] = scaled.ready
            self._engine.follow_place(*place)
        elif settled == known:
            return False
        self._world.settled[place] = settled
        return True
