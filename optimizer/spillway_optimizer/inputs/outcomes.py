"""What callers saw, from the entries of the boards of routes. Pure."""

from collections.abc import Mapping

from spillway_contracts.hot_state import RouteEntry

from spillway_optimizer.callers.averages import Outcomes, Route
from spillway_optimizer.callers.signals import Outcome

_WINDOW_S = 10.0  # that one entry covers


def gathered(entries: Mapping[tuple[Route, str], RouteEntry]) -> tuple[Outcomes, float | None]:
    """Returns the outcomes, and the Unix second of the newest; None: there are none.

    `entries` are by route and destination. One that is a window older than the newest is of a route
    that has fallen silent.
    """
    newest = max((entry.at for entry in entries.values()), default=None)
    found: dict[Route, dict[str, Outcome]] = {}
    for (route, destination), e in entries.items():
        if newest is not None and e.at > newest - _WINDOW_S:
            outcome = Outcome(e.rps, e.success_rate, e.p50_ms, e.p99_ms, e.in_flight)
            found.setdefault(route, {})[destination] = outcome
    return found, newest
