"""The shares of one route's destinations. Pure."""

from collections.abc import Callable, Sequence

import numpy as np

from spillway_optimizer.callers.averages import RouteSignals
from spillway_optimizer.callers.signals import Signals
from spillway_optimizer.feedback import c3, l3, rate_control
from spillway_optimizer.problem.arrays import Floats

Weigh = Callable[[Signals, float], float]  # of the signals and P, which C3 does not have
# Of the mean weight. Every destination gets some calls, or nothing more is known of it (L3, 3.1).
LEAST = 0.01
_LEAST_SUCCESS = 1e-3  # where nothing succeeds, a weight is small and not 0
_MOST = 1e9  # 1/s; a latency of 0 has no weight


def by_l3(signals: Signals, penalty_s: float) -> float:
    return _by_l3(signals, signals.p99_s.now, penalty_s)


def by_l3_peak(signals: Signals, penalty_s: float) -> float:
    return _by_l3(signals, signals.peak_s.now, penalty_s)


def _by_l3(signals: Signals, latency_s: float, penalty_s: float) -> float:
    success_rate = max(signals.success_rate.now, _LEAST_SUCCESS)
    return l3.weight(signals.in_flight.now, signals.rps.now, latency_s, success_rate, penalty_s)


def by_c3(signals: Signals, _: float) -> float:
    return c3.weight(signals.in_flight.now, signals.rps.now, signals.p50_s.now, signals.p99_s.now)


def shares(route: RouteSignals, destinations: Sequence[str], weigh: Weigh, penalty_s: float) -> Floats:
    """Returns shares [destinations], all above 0, that sum to 1."""
    signals = [route.destinations.get(name, Signals()) for name in destinations]
    weights = np.minimum([weigh(each, penalty_s) for each in signals], _MOST)
    least = LEAST * float(weights.mean())
    change = rate_control.change(route.last_rps, route.total.now)
    found = rate_control.adjusted(np.maximum(weights, least), change, least)
    return found / found.sum()
