"""What failures cost: the success rate of each class in each cluster, and its price in ms. Pure.

The price of a call is P * (1/R - 1), where R is the success rate (the L3 paper, equation 4). With P
= 600 ms, a destination that fails every tenth call costs 67 ms more, and one that fails every
second call 600 ms more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown

_HALF_LIFE_S = 10.0
# Without requests a rate stays for _SILENT_S seconds, then rises by _BACK_PER_S per second until it
# is 1. Otherwise a destination that nobody calls any more would never be tried again.
_SILENT_S, _BACK_PER_S = 10.0, 0.01 / 5
_PRIOR = 5.0  # successes that every rate begins with
# Standard errors. Only failures beyond them count, because few failures of few requests are chance.
_SIGMA = 2.0
_LEAST_RATE = 0.05  # lower limit, so that the cost is finite
_BOARD_S = 5.0  # seconds that the rates of a board cover
Rates = Mapping[tuple[str, str], float]  # (class, cluster) -> success rate


@dataclass(frozen=True)
class Success:
    """Success rate of one class in one cluster.

    It is a mean over `samples` requests, in which older requests weigh less.
    """

    rate: float = 1.0
    samples: float = _PRIOR
    silent_s: float = 0.0

    def after(self, requests: float, failed_share: float, dt_s: float) -> "Success":
        """Returns the rate after `dt_s` more seconds in which `requests` arrived."""
        if requests <= 0:
            silent_s = self.silent_s + dt_s
            back = _BACK_PER_S * dt_s if silent_s > _SILENT_S else 0.0
            return replace(self, rate=min(1.0, self.rate + back), silent_s=silent_s)
        kept = 0.5 ** (dt_s / _HALF_LIFE_S) * self.samples
        samples = kept + requests
        return Success((kept * self.rate + requests * (1.0 - failed_share)) / samples, samples)

    @property
    def at_most(self) -> float:
        """The highest rate that is likely, given the samples."""
        spread = math.sqrt(max(self.rate * (1.0 - self.rate), 0.0) / max(self.samples, 1.0))
        return min(1.0, self.rate + _SIGMA * spread)


@dataclass(frozen=True)
class Successes:
    """Success rates by (class, cluster)."""

    known: Mapping[tuple[str, str], Success] = field(default_factory=dict)
    at: float | None = None

    def after(self, telemetry: Telemetry, unknown: Unknown, now: float) -> "Successes":
        """Returns the rates after one more reading of the load boards, at Unix second `now`.

        Rates of what is unknown do not change.
        """
        dt_s = _BOARD_S if self.at is None else max(now - self.at, 0.0)
        boards = {(k, c): entry for c, board in telemetry.load.items() for k, entry in board.items()}
        known = dict(self.known)
        for key in self.known.keys() | boards.keys():
            if unknown.why(key[0].partition(" ")[0], key[1]) is None:
                entry = boards.get(key)
                requests = min(dt_s, _BOARD_S) * entry.rps if entry else 0.0
                share = min(max(entry.failed_share, 0.0), 1.0) if entry else 0.0
                known[key] = known.get(key, Success()).after(requests, share, dt_s)
        return Successes({k: s for k, s in known.items() if s.rate < 1.0 or k in boards}, now)

    def rates(self) -> Rates:
        """Returns the highest likely rate of each (class, cluster)."""
        return {key: success.at_most for key, success in self.known.items()}


def of_boards(telemetry: Telemetry, unknown: Unknown, now: float) -> Rates:
    """Returns the success rates from a single reading."""
    return Successes().after(telemetry, unknown, now).rates()


def rates_without_callees(
    rates: Rates,
    classes: Mapping[str, str],
    calls: Mapping[str, Mapping[str, float]],
    shares: Callable[[str, str, str], Mapping[str, float]],
) -> Rates:
    """Returns the success rates below 1, without the failures that a class only passes on.

    A request fails if any of its calls does. A class's own rate is its observed rate divided by
    that of the calls that it makes. `calls` has the calls per request by caller and callee.
    `shares` returns where the calls of (source cluster, source service, class) go now.
    """
    found: dict[tuple[str, str], float] = {}
    for (class_id, cluster), rate in rates.items():
        if rate >= 1.0 or class_id not in classes:
            continue
        below = 1.0
        for callee, per_request in calls.get(class_id, {}).items():
            to = shares(cluster, classes[class_id], callee)
            reached = sum(share * rates.get((callee, c), 1.0) for c, share in to.items())
            below *= _all_good(max(reached, _LEAST_RATE), per_request) if to else 1.0
        if rate < below:
            found[class_id, cluster] = rate / below
    return found


def _all_good(rate: float, per_request: float) -> float:
    """Returns how often all calls of a request to one class succeed.

    Less than one call per request is one call by that share of the requests.
    """
    return float(rate**per_request) if per_request >= 1 else 1 - per_request + per_request * rate


def cost_ms(rate: float, price_ms: float) -> float:
    """Returns what failures cost per call at success rate `rate`; `price_ms` is P."""
    return price_ms * (1.0 / max(rate, _LEAST_RATE) - 1.0)
