"""What users cause in an application: calls of every class, and the work of a service. Pure."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway_lab.scenario.application import Application, Call, Endpoint
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.places import Request

_VARIABLE = re.compile(r"\\\{[^}]+\\\}")


@dataclass(frozen=True)
class Work:
    """What a service's workers do for the requests that it gets, whatever their class."""

    mean_ms: float
    cv2: float  # squared coefficient of variation of the service time


def endpoint_of(application: Application, service: str, method: str, path: str) -> Endpoint:
    """Returns the endpoint that serves a path. One of exactly this path comes first."""
    found = [
        endpoint
        for endpoint in application.services[service].endpoints
        if endpoint.method == method and _serves(endpoint.path, path)
    ]
    if not found:
        raise KeyError(f"{service} {method} {path}: no endpoint has this path")
    return min(found, key=lambda endpoint: endpoint.path != path)


def rates(
    application: Application, requests: Sequence[Request], shares: Sequence[float] | None = None
) -> dict[str, float]:
    """Returns the requests of every class that one request at the entry causes.

    `shares` are those of `requests`; without them each has its own `share`. Raises InvalidInput if
    calls lead back to their caller, which would never end.
    """
    found: dict[str, float] = defaultdict(float)

    def add(asked: Request | Call, rate: float, callers: tuple[str, ...]) -> None:
        way = (*callers, asked.class_id)
        if asked.class_id in callers:
            raise InvalidInput([f"calls: {' -> '.join(way)}; allowed: no way back"])
        found[asked.class_id] += rate
        endpoint = endpoint_of(application, asked.service, asked.method, asked.path)
        for call in (call for stage in endpoint.calls for call in stage):
            add(call, rate * call.mean_count, way)

    given = [request.share for request in requests] if shares is None else list(shares)
    for request, share in zip(requests, given, strict=True):
        add(request, share / sum(given), ())
    return dict(found)


def work(application: Application, service: str, by_class: Mapping[str, float]) -> Work | None:
    """Returns the mean and the spread of a service's times, over the requests of all its classes.

    `by_class` are rates as `rates` returns them. None: the service gets no requests.
    """
    total = first = second = 0.0
    for class_id, rate in by_class.items():
        name, method, path = class_id.split(" ", 2)
        if name == service:
            time = endpoint_of(application, service, method, path).service_time
            total += rate
            first += rate * time.mean_ms
            second += rate * time.mean_ms**2 * (1 + time.cv2)
    if not total:
        return None
    mean_ms = first / total
    return Work(mean_ms, second / total / mean_ms**2 - 1)


def _serves(template: str, path: str) -> bool:
    pattern = _VARIABLE.sub("[^/]+", re.escape(template))
    return template == path or re.fullmatch(pattern, path) is not None
