"""Which of a scenario's requests a request was, from its method and URL. Pure."""

import re
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

from spillway_lab.render.pods import Plan
from spillway_lab.scenario.errors import LoadError
from spillway_lab.scenario.scenario import Scenario

_VARIABLE = re.compile(r"\{[^}]+\}")


def kinds(scenario: Scenario, layout: Plan) -> Callable[[str, str], int]:
    """Returns a function (method, URL) -> index into the scenario's requests.

    The port of the URL tells the service. The function raises LoadError for a URL that no request
    has.
    """
    services = {pod.inbound_port: pod.service for pod in layout.pods}
    patterns = [
        (i, request.service, request.method, re.compile(pattern(request.path)))
        for i, request in enumerate(scenario.document.requests)
    ]

    @cache
    def kind(method: str, url: str) -> int:
        parts = urlsplit(url)
        service = services.get(parts.port or 0)
        for i, its_service, its_method, path in patterns:
            if (its_service, its_method) == (service, method) and path.fullmatch(parts.path):
                return i
        raise LoadError(f"{method} {url}: is none of the scenario's requests")

    return kind


def pattern(path: str) -> str:
    """Returns the regular expression of a path with variables in braces, one segment each."""
    parts = [re.escape(part) for part in _VARIABLE.split(path)]
    return "[^/]+".join(parts)
