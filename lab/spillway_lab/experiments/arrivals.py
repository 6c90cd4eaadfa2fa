"""Expected curves for the requests that arrived, from an application's file.

How much a queue waits depends on how regularly requests arrive. A busy machine delivers them in
bursts, and a ladder of a minute has few of them. So the queues are simulated with the recorded
arrivals: what is left to compare is what streams made of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spillway_lab.experiments.truth import Known, KnownService, curve
from spillway_lab.scenario.scenario import Request, Scenario
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

_DRAWS = 200  # of random service times, over which the expected times are averaged


@dataclass(frozen=True)
class Step:
    """A step of the load, from `start` to `end` in Unix seconds.

    Its first request may arrive later than `start`, and its last one before `end`.
    """

    start: float
    end: float


Arrival = tuple[float, str]  # Unix seconds, class id


def given(
    known: Known, scenario: Scenario, arrivals: Mapping[str, Sequence[Arrival]], steps: Sequence[Step]
) -> Known:
    """Returns `known` with the curves of the queues that these arrivals by service meet.

    The scenario must have one cluster. Steps in which more arrives than the workers can serve are
    left out: a curve has no value there. A class without arrivals in at least two other steps keeps
    its curve.
    """
    every = np.sort([at for some in arrivals.values() for at, _ in some])
    steps = [
        Step(float(inside[0]), float(inside[-1]))
        for step in steps
        if len(inside := every[(every >= step.start) & (every <= step.end)]) > 1
    ]
    services = {
        name: replace(service, curves=_curves(service, _alone(scenario, name), arrivals[name], steps))
        for name, service in known.services.items()
        if name in arrivals
    }
    return replace(known, services={**known.services, **services})


def _alone(scenario: Scenario, name: str) -> Scenario:
    """Returns a service alone: each of its classes is a kind of request, and it calls nothing."""
    [cluster] = scenario.clusters
    application, document = scenario.application_of(cluster), scenario.document
    service = application.services[name]
    endpoints = [endpoint.model_copy(update={"calls": []}) for endpoint in service.endpoints]
    services = {name: service.model_copy(update={"endpoints": endpoints})}
    requests = [Request(service=name, method=each.method, path=each.path) for each in endpoints]
    # The application is already that of the cluster.
    clusters = {cluster: document.clusters[cluster].model_copy(update={"services": {}})}
    return scenario.model_copy(
        update={
            "application": application.model_copy(update={"services": services}),
            "document": document.model_copy(update={"clusters": clusters, "requests": requests}),
        }
    )


def _curves(
    service: KnownService, alone: Scenario, arrivals: Sequence[Arrival], steps: Sequence[Step]
) -> dict[str, tuple[float, float]]:
    classes = [request.class_id for request in alone.document.requests]
    kinds = {class_id: kind for kind, class_id in enumerate(classes)}
    requests = sorted((at, kinds[class_id]) for at, class_id in arrivals if class_id in kinds)
    load = np.array([_utilisation(alone, requests, step) for step in steps])
    means = _means(alone, requests, steps)
    seconds = np.array([step.end - step.start for step in steps])
    found = dict(service.curves)
    for class_id in service.curves:
        latency = means[kinds[class_id]]
        seen = np.isfinite(latency) & (load < 1)
        if np.count_nonzero(seen) >= 2:
            found[class_id] = curve(load[seen], latency[seen], seconds[seen])
    return found


def _utilisation(alone: Scenario, requests: Sequence[tuple[float, int]], step: Step) -> float:
    """Share of the workers that the arrivals of a step keep busy, on average."""
    [service] = alone.application.services.values()
    work_ms = sum(
        service.endpoints[kind].service_time.mean_ms for at, kind in requests if step.start <= at < step.end
    )
    return work_ms / 1000 / service.workers / (step.end - step.start)


def _means(alone: Scenario, requests: Sequence[tuple[float, int]], steps: Sequence[Step]) -> np.ndarray:
    """Returns the expected time in ms of the requests that are served, shape (kinds, steps).

    NaN where there are none.
    """
    [cluster] = alone.clusters
    [service] = alone.application.services.values()
    constant = all(each.service_time.distribution == "constant" for each in service.endpoints)
    total, served = np.zeros((2, len(service.endpoints), len(steps)))
    begin = requests[0][0] if requests else 0.0
    for seed in range(1 if constant else _DRAWS):
        engine = Engine(World(Indices(alone)), seed)
        engine.replay({cluster: [(at - begin, kind) for at, kind in requests]})
        engine.run(math.inf)
        ended = engine.ended()
        for number, step in enumerate(steps):
            at = ended.at_s + begin
            inside = ended.ok & (step.start <= at) & (at < step.end)
            served[:, number] += np.bincount(ended.kind[inside], minlength=len(served))
            total[:, number] += np.bincount(
                ended.kind[inside], ended.latency_ms[inside], minlength=len(served)
            )
    return np.divide(total, served, out=np.full_like(total, np.nan), where=served > 0)
