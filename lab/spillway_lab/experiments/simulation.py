"""Event-driven simulation of an application's queues under load. Pure.

Queues are unbounded and served first in, first out. There is no network and no proxy.
"""

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from spillway_lab.scenario.application import Application, Call, Endpoint, ServiceTime
from spillway_lab.scenario.flows import endpoint_of
from spillway_lab.scenario.scenario import Request

Done = Callable[[float], None]


@dataclass
class _Pool:
    workers: int
    busy: int = 0
    waiting: deque[Callable[[float], None]] = field(default_factory=deque)


class Simulation:
    """An application in one cluster with one pod per service.

    `own_ms` holds, per class id, the times in ms that requests waited for and held a worker. They
    are in the order in which the requests ended.
    """

    def __init__(self, application: Application, seed: int) -> None:
        self._application, self._random = application, random.Random(seed)
        self._pools = {name: _Pool(service.workers) for name, service in application.services.items()}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self.own_ms: dict[str, list[float]] = defaultdict(list)

    def run(self, requests: list[Request], rps: float, seconds: float, is_poisson: bool = False) -> None:
        """Runs requests in proportion to their shares, for `seconds` at `rps` requests per second.

        Arrivals are evenly spaced, as the load generator sends them, or follow a Poisson process.
        """
        shares = [request.share for request in requests]
        at = 0.0
        while at < seconds:
            [request] = self._random.choices(requests, shares)
            self._at(at, partial(self._enter, request))
            at += self._random.expovariate(rps) if is_poisson else 1 / rps
        while self._events:
            when, _, event = heapq.heappop(self._events)
            event(when)

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def _enter(self, request: Request, at: float) -> None:
        self._arrive(at, request.service, request.method, request.path, lambda _: None)

    def _arrive(self, at: float, service: str, method: str, path: str, done: Done) -> None:
        pool, endpoint = self._pools[service], endpoint_of(self._application, service, method, path)

        def serve(start: float) -> None:
            end = start + draw(endpoint.service_time, self._random)
            self._at(end, leave)

        def leave(now: float) -> None:
            self.own_ms[f"{service} {endpoint.method} {endpoint.path}"].append((now - at) * 1000)
            if pool.waiting:
                pool.waiting.popleft()(now)
            else:
                pool.busy -= 1
            self._call(now, endpoint, 0, done)

        if pool.busy < pool.workers:
            pool.busy += 1
            serve(at)
        else:
            pool.waiting.append(serve)

    def _call(self, at: float, endpoint: Endpoint, stage: int, done: Done) -> None:
        """Runs the stages from `stage` on one after the other, then calls `done`."""
        if stage == len(endpoint.calls):
            done(at)
            return
        calls = [call for call in endpoint.calls[stage] for _ in range(self._times(call))]
        left = len(calls)
        if not calls:
            self._call(at, endpoint, stage + 1, done)
            return

        def returned(now: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._call(now, endpoint, stage + 1, done)

        for call in calls:
            self._arrive(at, call.service, call.method, call.path, returned)

    def _times(self, call: Call) -> int:
        if call.count is not None:
            return call.count
        return int(call.probability is None or self._random.random() < call.probability)


def draw(time: ServiceTime, chance: random.Random) -> float:
    """Draws a service time in seconds, like the emulator (lab/emulator/servicetime.go)."""
    mean = time.mean_ms / 1000
    if time.distribution == "exponential":
        return chance.expovariate(1 / mean)
    if time.distribution == "lognormal":
        # The emulator, which checks the same file, refuses a lognormal without cv.
        assert time.cv is not None
        variance = float(np.log1p(time.cv**2))
        return mean * chance.lognormvariate(-variance / 2, variance**0.5)
    return mean
