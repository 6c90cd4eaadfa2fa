"""A pod's capacity from a growing queue: more requests arrive than leave. Pure.

Calls are counted in the second in which they arrive, even when they leave much later. A request
that arrives at t leaves at t + W(t). If n requests arrive within d seconds while the latency W
rises by w, they leave within d + w seconds: the pod completed n / (d + w) per second. While a queue
grows, the pod cannot do more, whatever limits it.
"""

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.capacity.capacity import MIN_SECONDS, Capacity
from spillway_streams.load import rates

SPAN_S = 8  # seconds of arrivals whose departures are counted
GROWTH = 0.05  # seconds of latency per second of arrivals
_QUEUED = 3.0  # times the quiet latency: from there on, work is waiting all the time
_REQUESTS = 30
_USUAL = 0.9  # share of the usual rate without a queue that counts as the pod's usual work
_LEAST_GROWTH = 0.05
_BEYOND = 1.15  # times the limit, served later without a queue: the limit no longer holds


def from_backlog(at: Ints, arrived: Floats, latency: Floats) -> Capacity | None:
    """Returns the capacity that growing queues show.

    `at`: seconds (n,); `arrived`: arrivals per second at one pod (baseline class); `latency`: mean
    exclusive time, ms, 0 where unknown. None when no queue grew, or when the pod served more after
    it had grown.
    """
    known = latency > 0
    at, arrived, latency = at[known], arrived[known], latency[known] / 1000
    if len(at) <= MIN_SECONDS:
        return None
    wait = rates.moving_mean(at, latency, 3)
    quiet = float(np.percentile(latency, 10))
    total = np.concatenate([[0.0], np.cumsum(arrived)])
    first = np.arange(len(at) - SPAN_S)
    end = first + SPAN_S
    rise, count = wait[end] - wait[first], total[end] - total[first]
    growing = (at[end] - at[first] == SPAN_S) & (rise >= GROWTH * SPAN_S)
    growing &= (wait[first] >= _QUEUED * quiet) & (count >= _REQUESTS)
    served = count / (SPAN_S + np.maximum(rise, 0))
    calm = np.where(wait < _QUEUED * quiet, rates.moving_mean(at, arrived), 0.0)
    later = np.maximum.accumulate(calm[::-1])[::-1]
    growing &= later[end] <= _BEYOND * served
    if growing.sum() < MIN_SECONDS // 2:
        return None
    limit = float(np.median(served[growing]))
    rows = np.zeros(len(at), bool)
    for step in range(SPAN_S):
        rows[first[growing] + step] = True
    error = limit / np.sqrt(max(float(arrived[rows].sum()), 1.0))
    reason = f"the rate completed in {int(rows.sum())} s in which the queue grew by {rise[growing].sum() / SPAN_S:.1f} s"
    return Capacity(limit, "curve", reason, se=error, evidence="queue")


def overloaded(at: Ints, rate: Floats, latency: Floats) -> Bools:
    """Seconds (n,) in which a queue grows or drains while the pod completes its usual rate.

    More arrived than the pod can do; that is not evidence of a change of the pod.
    """
    if not (latency > 0).any():
        return np.zeros(len(at), bool)
    wait = rates.moving_mean(at, latency / 1000)
    queued = wait >= _QUEUED * np.percentile(latency[latency > 0], 10) / 1000
    growth = np.gradient(wait, at) if len(at) > 1 else np.zeros(len(at))
    completed = rate / np.maximum(1 + growth, _LEAST_GROWTH)
    usual = np.percentile(rate[~queued], 95) if (~queued).any() else 0.0
    found: Bools = queued & (np.abs(growth) >= GROWTH) & (completed >= _USUAL * usual)
    return found
