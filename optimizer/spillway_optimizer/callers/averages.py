"""The averages of all routes, from one reading of outcomes to the next. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from spillway_optimizer.callers.ewma import Ewma
from spillway_optimizer.callers.signals import RATE, Outcome, Signals

Route = tuple[str, str, str]  # source cluster, source service, class that is called
Outcomes = Mapping[Route, Mapping[str, Outcome]]  # by route, then by destination cluster
# The first reading counts as if it came this long after the start (L3, section 4: every 5 s).
_PERIOD_S = 5.0
# A route without calls for so long is forgotten. All its averages are at their initial values then.
_FORGET_S = 600.0


@dataclass(frozen=True)
class RouteSignals:
    """The averages of one route. A destination that is not here was never measured."""

    destinations: Mapping[str, Signals] = field(default_factory=dict)
    total: Ewma = RATE  # requests per second to all destinations
    last_rps: float = 0.0  # the last sample of `total`

    def after(self, outcomes: Mapping[str, Outcome], seconds: float) -> Self:
        """Returns the averages after a reading, `seconds` after the one before."""
        names = sorted(self.destinations.keys() | outcomes.keys())
        last_rps = sum(outcome.rps for outcome in outcomes.values())
        return replace(
            self,
            destinations={
                name: self.destinations.get(name, Signals()).after(outcomes.get(name), seconds)
                for name in names
            },
            total=self.total.after(last_rps, seconds),
            last_rps=last_rps,
        )

    @property
    def silent_s(self) -> float:
        """For how long the route has had no calls, in seconds; infinity if it never had any."""
        return min((each.silent_s for each in self.destinations.values()), default=math.inf)


@dataclass(frozen=True)
class Averages:
    """The averages of every route after the readings so far, the last one at Unix second `at`."""

    routes: Mapping[Route, RouteSignals] = field(default_factory=dict)
    at: float | None = None

    def after(
        self, outcomes: Outcomes, at: float, unknown: Callable[[Route], bool] = lambda _: False
    ) -> Self:
        """Returns the averages after one more reading; a reading that is not newer changes nothing.

        Routes of which nothing is known now (`unknown`) keep their averages: that is no silence.
        """
        seconds = _PERIOD_S if self.at is None else at - self.at
        if seconds <= 0:
            return self
        keys = self.routes.keys() | outcomes.keys()
        routes = {}
        for key in sorted(keys):
            before = self.routes.get(key, RouteSignals())
            routes[key] = before if unknown(key) else before.after(outcomes.get(key, {}), seconds)
        return replace(
            self, routes={key: each for key, each in routes.items() if each.silent_s < _FORGET_S}, at=at
        )
