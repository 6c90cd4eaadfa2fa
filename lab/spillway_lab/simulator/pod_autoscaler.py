"""An emulated autoscaler, as the HorizontalPodAutoscaler of Kubernetes decides. Pure.

Every period, `ready` pods at utilisation u become ceil(ready * u / target), and stay where u is
within the tolerance of the target. Pods that still start count as idle before more are added. The
number at most doubles, or grows by four, in one period. It falls only to the highest number that
was wanted within the stabilisation window
(https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
"""

import math
from collections import deque

from spillway_lab.scenario.autoscalers import Autoscaler

# Streams store the fewest pods of these seconds beside a capacity, and newer pods hardly count.
_SETTLED_S = 180.0
_MOST_FACTOR, _MOST_MORE = 2, 4  # in one period


class PodAutoscaler:
    """The pods of one service in one cluster."""

    def __init__(self, settings: Autoscaler, pods: int) -> None:
        self._settings = settings
        self.wanted, self.ready = pods, pods
        self._ready_at: deque[float] = deque()  # of pods that start, in order
        self._advice: deque[tuple[float, int]] = deque([(0.0, pods)])  # (second, pods)
        self._counts: deque[tuple[float, int]] = deque([(0.0, pods)])  # (since second, ready pods)

    def start(self, now_s: float) -> None:
        """Makes the pods ready whose start has ended."""
        while self._ready_at and self._ready_at[0] <= now_s:
            self._ready_at.popleft()
            self.ready += 1
        self._count(now_s)

    def settled(self, now_s: float) -> int:
        """Returns the fewest ready pods of the last three minutes."""
        while len(self._counts) > 1 and self._counts[1][0] <= now_s - _SETTLED_S:
            self._counts.popleft()
        return min(pods for _, pods in self._counts)

    def decide(self, now_s: float, busy_pods: float) -> None:
        """Sets the number of pods. `busy_pods`: fully used pods, a mean since the last decision."""
        s = self._settings
        wanted = self._bounded(self._advised(busy_pods))
        self._advice.append((now_s, wanted))
        while self._advice[0][0] < now_s - s.stabilisation_seconds:
            self._advice.popleft()
        self._become(wanted if wanted > self.wanted else self._stable(), now_s)

    def _stable(self) -> int:
        return min(self.wanted, max(pods for _, pods in self._advice))

    def _advised(self, busy_pods: float) -> int:
        s = self._settings
        ratio = busy_pods / self.ready / s.target_utilisation
        counted = self.ready
        if self._ready_at and ratio > 1:
            counted = self.wanted
            ratio = busy_pods / counted / s.target_utilisation
            if ratio <= 1:
                return self.wanted
        if abs(ratio - 1) <= s.tolerance:
            return self.wanted
        # Without the rounding, ratios such as 3 * 0.8 / 0.6 are a little above a whole number.
        return math.ceil(round(ratio * counted, 9))

    def _bounded(self, pods: int) -> int:
        s = self._settings
        most = min(s.max_pods, max(_MOST_FACTOR * self.wanted, self.wanted + _MOST_MORE))
        return max(s.min_pods, min(pods, most))

    def _become(self, pods: int, now_s: float) -> None:
        for _ in range(pods - self.wanted):
            self._ready_at.append(now_s + self._settings.start_seconds)
        for _ in range(self.wanted - pods):  # those that start go first
            if self._ready_at:
                self._ready_at.pop()
            else:
                self.ready -= 1
        self.wanted = pods
        self.start(now_s)

    def _count(self, now_s: float) -> None:
        if self._counts[-1][1] != self.ready:
            self._counts.append((now_s, self.ready))
