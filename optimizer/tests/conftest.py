"""Small problems that tests state in a few words."""

from collections.abc import Callable

import pytest
from spillway_optimizer.problem.problem import Curve, Edge, Problem


def class_of(service: str, path: str = "/x") -> str:
    return f"{service} GET {path}"


@pytest.fixture
def chain() -> Callable[..., Problem]:
    """Returns a function that makes a problem whose services each call the next one once.

    Example: chain(demand={"west": 300}, services=("web", "db"), ...).
    """

    def make(
        demand: dict[str, float],
        services: tuple[str, ...] = ("web", "db"),
        capacity: float | dict[tuple[str, str], float] = 500.0,
        curves: dict[str, Curve] | None = None,
        absent: frozenset[tuple[str, str]] = frozenset(),
        rtt: float | dict[tuple[str, str], float] = 25.0,
        usd_per_ms: float = 1e-7,
        response_bytes: dict[str, float] | None = None,
        clusters: tuple[str, ...] = ("west", "east"),
        thresholds: dict[tuple[str, str], float] | None = None,
    ) -> Problem:
        pairs = [(i, j) for i in clusters for j in clusters]
        everywhere = {(s, c) for s in services for c in clusters}
        sizes = response_bytes or {}
        return Problem(
            clusters=clusters,
            classes={class_of(s): s for s in services},
            edges=tuple(
                Edge(class_of(a), class_of(b), 1.0, 1000.0, sizes.get(b, 10_000.0))
                for a, b in zip(services, services[1:], strict=False)
            ),
            demand_rps={(c, class_of(services[0])): rps for c, rps in demand.items()},
            curves={class_of(s): (curves or {}).get(s, Curve(3.0, 7.0)) for s in services},
            capacity_rps=capacity if isinstance(capacity, dict) else dict.fromkeys(everywhere, capacity),
            placement=frozenset(everywhere - absent),
            rtt_ms=rtt if isinstance(rtt, dict) else {(i, j): 0.0 if i == j else rtt for i, j in pairs},
            egress_usd_per_gb={(i, j): 0.02 for i, j in pairs if i != j},
            usd_per_ms=usd_per_ms,
            threshold_rps=thresholds or {},
        )

    return make
