"""C3's score of a destination, as the L3 paper adapts C3 to aggregated metrics. Pure.

C3 ranks replicas by M + (1 + q)³/μ (Suresh et al., C3: cutting tail latency in cloud data stores
via adaptive replica selection, NSDI 2015). Here there are no queue lengths in the answers and no
concurrency of single clients, so the score is M + R³ M, with R the requests in flight for each rps.
Failures play no part.
"""

import math

_Z99 = 2.3263478740408408  # the standard normal's quantile at 99 %


def mean_latency_s(p50_s: float, p99_s: float) -> float:
    """Returns the mean of the log-normal distribution with these quantiles."""
    if p50_s <= 0:
        return 0.0
    sigma = (math.log(max(p99_s, p50_s)) - math.log(p50_s)) / _Z99
    return math.exp(math.log(p50_s) + sigma**2 / 2)


def weight(in_flight: float, rps: float, p50_s: float, p99_s: float) -> float:
    """Returns 1 / (M (1 + R³)), of smoothed signals."""
    relative = in_flight / rps if rps > 0 else 0.0
    cost = mean_latency_s(p50_s, p99_s) * (1 + relative**3)
    return 1 / cost if cost > 0 else float("inf")
