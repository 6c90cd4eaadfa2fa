"""Expected curves for the requests that arrived, from an application's file. Pure.

How much a queue waits depends on how regularly requests arrive. A busy machine delivers them in
bursts, and a ladder of a minute has few of them. So the queues are simulated with the recorded
arrivals: what is left to compare is what streams made of them.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spillway_lab.experiments.simulation import draw
from spillway_lab.experiments.truth import Known, KnownService, curve
from spillway_lab.scenario.application import Application, ServiceTime

_DRAWS = 20  # of random service times, over which the expected times are averaged


@dataclass(frozen=True)
class Step:
    """A step of the load, from `start` to `end` in Unix seconds.

    Its first request may arrive later than `start`, and its last one before `end`.
    """

    start: float
    end: float


Arrival = tuple[float, str]  # Unix seconds, class id


def given(
    known: Known, application: Application, arrivals: Mapping[str, Sequence[Arrival]], steps: Sequence[Step]
) -> Known:
    """Returns `known` with the curves of the queues that these arrivals by service meet.

    Steps in which more arrives than the workers can serve are left out: a curve has no value there.
    A class without arrivals in at least two other steps keeps its curve.
    """
    every = np.sort([at for some in arrivals.values() for at, _ in some])
    steps = [
        Step(float(inside[0]), float(inside[-1]))
        for step in steps
        if len(inside := every[(every >= step.start) & (every <= step.end)]) > 1
    ]
    services = {
        name: replace(service, curves=_curves(service, application, name, sorted(arrivals[name]), steps))
        for name, service in known.services.items()
        if name in arrivals
    }
    return replace(known, services={**known.services, **services})


def _curves(
    service: KnownService, application: Application, name: str, arrivals: Sequence[Arrival], steps: Sequence[Step]
) -> dict[str, tuple[float, float]]:  # fmt: skip
    times = {
        endpoint.class_id(name): endpoint.service_time for endpoint in application.services[name].endpoints
    }
    workers = application.services[name].workers
    arrivals = [(at, class_id) for at, class_id in arrivals if class_id in times]
    means = _means(arrivals, times, workers, steps)
    load = {step: _utilisation(arrivals, times, workers, step) for step in steps}
    found = dict(service.curves)
    for class_id in service.curves:
        seen = [step for step in steps if (class_id, step) in means and load[step] < 1]
        if len(seen) >= 2:
            latencies = [means[class_id, step] for step in seen]
            seconds = [step.end - step.start for step in seen]
            found[class_id] = curve(
                np.array([load[step] for step in seen]), np.array(latencies), np.array(seconds)
            )
    return found


def _utilisation(
    arrivals: Sequence[Arrival], times: Mapping[str, ServiceTime], workers: int, step: Step
) -> float:
    """Share of the workers that the arrivals of a step keep busy, on average."""
    work_ms = sum(times[class_id].mean_ms for at, class_id in arrivals if step.start <= at < step.end)
    return work_ms / 1000 / workers / (step.end - step.start)


def _means(
    arrivals: Sequence[Arrival], times: Mapping[str, ServiceTime], workers: int, steps: Sequence[Step]
) -> dict[tuple[str, Step], float]:
    """Returns the expected exclusive time in ms of the requests of each class and step."""
    found: dict[tuple[str, Step], list[float]] = defaultdict(list)
    constant = all(time.distribution == "constant" for time in times.values())
    for seed in range(1 if constant else _DRAWS):
        taken_s = sojourns(arrivals, times, workers, random.Random(seed))
        for (at, class_id), seconds in zip(arrivals, taken_s, strict=True):
            for step in steps:
                if step.start <= at < step.end:
                    found[class_id, step].append(seconds * 1000)
    return {key: float(np.mean(ms)) for key, ms in found.items()}


def sojourns(
    arrivals: Sequence[Arrival], times: Mapping[str, ServiceTime], workers: int, chance: random.Random
) -> list[float]:
    """Returns the seconds that each request waits for and holds one of the workers.

    They are served first in, first out. `arrivals` must be sorted.
    """
    free = [-float("inf")] * workers
    found = []
    for at, class_id in arrivals:
        end = max(at, heapq.heappop(free)) + draw(times[class_id], chance)
        heapq.heappush(free, end)
        found.append(end - at)
    return found
