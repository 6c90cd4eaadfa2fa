"""Expected models of an application, from its file and from its simulated queues. Pure.

Learned models are compared with these true values.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from spillway_lab.scenario import queues
from spillway_lab.scenario.application import Application
from spillway_lab.scenario.errors import InvalidInput, LabError
from spillway_lab.scenario.flows import rates
from spillway_lab.scenario.loads import Segment
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

_LEAST_BUSY = 0.1
_QUIET_MS = 3.0  # a third of the shortest service time
_STALL_MS = 5.0  # for the mean of ten seconds, in which the other classes wait many times as long


@dataclass(frozen=True)
class KnownService:
    """True values of one service.

    `saturation_rps`: requests per second that saturate the service with its mix of classes.
    `shares`: each class's share of the requests. `weights`: cost relative to the first class by
    name. `curves`: (a, b) of L(u) = a / (1 - u) + b in ms.
    """

    saturation_rps: float
    shares: dict[str, float]
    weights: dict[str, float]
    curves: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Known:
    """True values of a scenario.

    `calm` is a class that makes no calls, of a service where no request waits. `calm_ms` is its
    service time in ms.
    """

    services: dict[str, KnownService]
    ratios: dict[tuple[str, str], float]
    calm: str
    calm_ms: float
    judged_at: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7)

    def overhead_ms(self, learned: "Learned") -> float:
        """Latency in ms that proxies and the machine add to a request.

        It is the latency of the class where no request waits, minus the service time. Raises
        LabError when that curve was not learned, because nothing then shows that the machine was
        quiet.
        """
        if self.calm not in learned.curves:
            raise LabError(
                f"{self.calm}: no curve; it is needed to know what proxies and the machine add to a request"
            )
        a, b, *_ = learned.curves[self.calm]
        return a + b - self.calm_ms

    def disturbance(self, learned: "Learned") -> str:
        """Returns why the machine was too busy for a measurement, or an empty string."""
        if (overhead := self.overhead_ms(learned)) > _QUIET_MS:
            return (
                f"{self.calm} took {overhead:.1f} ms longer than its service time although nobody waits there; at "
                f"most {_QUIET_MS:.0f} ms are not a queue: the machine is too busy for a measurement"
            )
        if not learned.calm_windows_ms:
            return f"{self.calm}: no ten seconds with enough calls; they are needed to know whether the machine stalled"
        if (worst := max(learned.calm_windows_ms) - self.calm_ms) > _STALL_MS:
            return (
                f"{self.calm} took {worst:.1f} ms longer than its service time for ten seconds although nobody waits "
                f"there; at most {_STALL_MS:.0f} ms are not a stall: the machine is too busy for a measurement"
            )
        return ""


@dataclass(frozen=True)
class Learned:
    """The newest rows that were learned.

    `curves`: by class, (a, b, standard error of a in ms, weight, phase). `capacities`: by service,
    (requests per second of the first class, source, reason). `ratios`: calls per request by (source
    class, class). `calm_windows_ms`: the calm class's mean exclusive time in each ten seconds, in
    ms.
    """

    curves: dict[str, tuple]
    capacities: dict[str, tuple]
    ratios: dict[tuple[str, str], float]
    calm_windows_ms: tuple[float, ...]


def known(scenario: Scenario, simulated_s: float = 1000.0) -> Known:
    """Returns the truth of a scenario for the loads of its profile.

    The scenario must have one cluster with one pod per service. A service that is busy for less
    than a tenth of the time at the highest load says nothing about its capacity and is left out.
    """
    [cluster] = scenario.clusters
    application, requests = scenario.application_of(cluster), scenario.document.requests
    by_class = rates(application, requests)
    steps = [(step.rps[cluster], step.seconds) for step in scenario.document.load.profile]
    means = [_means(scenario, rps, simulated_s) for rps, _ in steps]
    services = {}
    for name in application.services:
        loads = np.array([utilisation(application, name, by_class, rps) for rps, _ in steps])
        if loads.max() >= _LEAST_BUSY:
            seconds = np.array([seconds for _, seconds in steps])
            services[name] = _service(application, name, by_class, loads, seconds, means)
    calm, calm_ms = _calm(application, [name for name in application.services if name not in services])
    return Known(services, dict(_ratios(application)), calm, calm_ms)


def _calm(application: Application, idle: list[str]) -> tuple[str, float]:
    for name in idle:
        for endpoint in application.services[name].endpoints:
            if not endpoint.calls:
                return endpoint.class_id(name), endpoint.service_time.mean_ms
    raise InvalidInput(
        [
            f"no service is below {_LEAST_BUSY:.0%} busy and calls nothing; one is needed to know what proxies add"
        ]
    )


def _means(scenario: Scenario, rps: float, seconds: float) -> dict[str, float]:
    """Returns each class's mean exclusive time in ms in the steady state at one load.

    Requests are evenly spaced, as vegeta sends them. The first tenth of the simulation is left out.
    A class that is not served has no time.
    """
    engine = Engine(World(Indices(scenario)), seed=1)
    engine.set_weights(engine.indices.weights({}))
    engine.load({cluster: [Segment(seconds, rps, rps)] for cluster in scenario.clusters}, poisson=False)
    engine.run(seconds / 10)
    engine.counts()
    engine.run(seconds)
    counts = engine.counts()
    served, own_s = counts.served.sum(axis=1), counts.own_s.sum(axis=1)
    return {
        name: 1000 * float(own_s[k] / served[k]) for k, name in enumerate(engine.indices.classes) if served[k]
    }


def _service(
    application: Application, name: str, by_class: Mapping[str, float], loads: np.ndarray, seconds: np.ndarray,
    means: list[dict[str, float]],
) -> KnownService:  # fmt: skip
    times = {
        endpoint.class_id(name): endpoint.service_time.mean_ms
        for endpoint in application.services[name].endpoints
    }
    times = {class_id: ms for class_id, ms in sorted(times.items()) if class_id in by_class}
    total = sum(by_class[class_id] for class_id in times)
    shares = {class_id: by_class[class_id] / total for class_id in times}
    first = next(iter(times.values()))
    mean_s = sum(shares[class_id] * ms for class_id, ms in times.items()) / 1000
    curves = {
        class_id: curve(loads, np.array([mean[class_id] for mean in means]), seconds) for class_id in times
    }
    weights = {class_id: ms / first for class_id, ms in times.items()}
    return KnownService(application.services[name].workers / mean_s, shares, weights, curves)


def curve(u: np.ndarray, latency: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Returns (a, b) of the curve nearest to the exact means `latency` at utilisations `u`.

    All are of shape (n,). A mean that is measured over `seconds` of a queue has an error that is
    relative to it, grows as 1 / (1 - u), and falls with the square root of the time.
    """
    return queues.curve(u, latency, np.sqrt(seconds) * (1 - u) / latency)


def _ratios(application: Application) -> Iterator[tuple[tuple[str, str], float]]:
    for name, service in application.services.items():
        for endpoint in service.endpoints:
            found: dict[str, float] = defaultdict(float)
            for call in (call for stage in endpoint.calls for call in stage):
                found[call.class_id] += call.mean_count
            for class_id, times in found.items():
                yield (endpoint.class_id(name), class_id), times


def utilisation(application: Application, service: str, by_class: Mapping[str, float], rps: float) -> float:
    """Share of a service's workers that are busy when the entry gets `rps` requests per second."""
    work = sum(
        by_class.get(endpoint.class_id(service), 0.0) * endpoint.service_time.mean_ms / 1000
        for endpoint in application.services[service].endpoints
    )
    return rps * work / application.services[service].workers
