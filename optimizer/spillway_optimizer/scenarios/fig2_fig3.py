"""SLATE figures 2, 3a and 3b: how much to route away, and where to.

From the paper: the application (gateway, frontend, backend in a chain, section 3.1). Figure 2 has
two clusters, with 100 requests per second in East and 100 to 1000 in West. Figure 3 has the four
regions with their round trips, and states which of them are overloaded, in which order.

Derived: the curves (2/(1-u) + 8 ms for frontend and backend, while a gateway costs nothing),
capacities of 1000 requests per second, Waterfall's thresholds of 900 (the paper gives no value for
these panels), the loads of figure 3, and the round trips at which figure 2 is evaluated.
"""

from collections.abc import Mapping

from spillway_optimizer.problem.problem import Curve, Problem
from spillway_optimizer.scenarios.build import GCP, GCP_RTT_MS, assemble, chain

_CURVES = {
    ("gateway", "/"): Curve(0.0, 0.0),
    ("frontend", "/"): Curve(2.0, 8.0),
    ("backend", "/"): Curve(2.0, 8.0),
}
_CAPACITY = {"gateway": 1e5, "frontend": 1000.0, "backend": 1000.0}
_THRESHOLD = {"gateway": 1e5, "frontend": 900.0, "backend": 900.0}


def _linear(
    clusters: tuple[str, ...], rtt_ms: Mapping[tuple[str, str], float], load: Mapping[str, float]
) -> Problem:
    return assemble(
        clusters,
        rtt_ms,
        chain("gateway", "frontend", "backend"),
        {(c, "gateway", "/"): rps for c, rps in load.items()},
        _CURVES,
        _CAPACITY,
        _THRESHOLD,
    )


def fig2(west_rps: float, rtt_ms: float) -> Problem:
    """One point of figure 2.

    `west_rps`: West's load (paper: 100 to 1000). `rtt_ms`: the round trip between West and East.
    """
    return _linear(("West", "East"), {("West", "East"): rtt_ms}, {"West": west_rps, "East": 100.0})


def fig3a() -> Problem:
    """Figure 3a. OR and IOW are overloaded, and UT is nearest to both.

    UT has room for both overflows up to its threshold.
    """
    return _linear(GCP, GCP_RTT_MS, {"OR": 1150.0, "UT": 400.0, "IOW": 1150.0, "SC": 300.0})


def fig3b() -> tuple[Problem, ...]:
    """Figure 3b, in the paper's order of events: UT is overloaded, then IOW, then SC.

    Each problem adds one event. IOW and SC reach at most what they could serve alone.
    """
    before = {"OR": 300.0, "UT": 400.0, "IOW": 450.0, "SC": 450.0}
    events = ({"UT": 1300.0}, {"IOW": 900.0}, {"SC": 900.0})
    loads = [before]
    for event in events:
        loads.append({**loads[-1], **event})
    return tuple(_linear(GCP, GCP_RTT_MS, load) for load in loads)
