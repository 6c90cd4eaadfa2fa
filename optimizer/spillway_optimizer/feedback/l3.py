"""L3's weight of a destination (algorithm 1, equations 3 and 4). Pure."""


def estimated_latency_s(latency_s: float, success_rate: float, penalty_s: float) -> float:
    """Returns L_est, the latency with what failures cost (equation 3); inf if nothing succeeds."""
    return latency_s + penalty_s * (1 / success_rate - 1) if success_rate > 0 else float("inf")


def weight(in_flight: float, rps: float, latency_s: float, success_rate: float, penalty_s: float) -> float:
    """Returns 1 / ((R + 1)² L_est), of smoothed signals; R are the requests in flight for each rps.

    `latency_s`: of successful requests, p99 in the paper.
    """
    relative = in_flight / rps if rps > 0 else 0.0
    cost = (relative + 1) ** 2 * estimated_latency_s(latency_s, success_rate, penalty_s)
    return 1 / cost if cost > 0 else float("inf")
