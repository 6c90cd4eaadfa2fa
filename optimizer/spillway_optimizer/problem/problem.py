"""The optimizer's input, checked (SLATE 4.3, appendix E.1)."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from spillway_optimizer import ProblemError
from spillway_optimizer.problem import constraints as side
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.values import Curve, Edge, TailPrice, TailTarget, Values

__all__ = ["Curve", "Edge", "Problem", "TailPrice", "TailTarget"]


@dataclass(frozen=True)
class Problem(Values):
    """Everything that a routing decision depends on.

    Raises ProblemError that lists everything that is wrong. Entry demand is served in the cluster
    that it enters. Only edges are routed.
    """

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise ProblemError("; ".join(problems))
        stranded = self.layout.stranded()
        if stranded:
            raise ProblemError("; ".join(stranded))

    @cached_property
    def layout(self) -> Layout:
        """The same values as arrays; see layout.py."""
        return Layout.of(self)


def _problems(problem: Problem) -> list[str]:
    found: list[str] = []

    def number(key: str, value: float, above_zero: bool = False) -> None:
        if not (math.isfinite(value) and (value > 0 if above_zero else value >= 0)):
            found.append(f"{key}: {value} must be a number {'above' if above_zero else 'of at least'} 0")

    def known(key: str, value: str, allowed: Collection[str]) -> None:
        if value not in allowed:
            found.append(f"{key}: unknown {value!r}; known: {', '.join(sorted(allowed)) or 'none'}")

    services = set(problem.classes.values())
    number("usd_per_ms", problem.usd_per_ms, above_zero=True)
    seen: set[tuple[str, str]] = set()
    for edge in problem.edges:
        key = f"edges[{edge.source} -> {edge.target}]"
        known(key, edge.source, problem.classes)
        known(key, edge.target, problem.classes)
        number(f"{key}.calls_per_request", edge.calls_per_request)
        number(f"{key}.request_bytes", edge.request_bytes)
        number(f"{key}.response_bytes", edge.response_bytes)
        if not 0.0 <= edge.wait_share <= 1.0:
            found.append(f"{key}.wait_share: {edge.wait_share} must be from 0 to 1")
        if (edge.source, edge.target) in seen:
            found.append(f"{key}: listed twice")
        seen.add((edge.source, edge.target))
    for (cluster, class_id), rps in problem.demand_rps.items():
        known("demand_rps", cluster, problem.clusters)
        known("demand_rps", class_id, problem.classes)
        number(f"demand_rps[{cluster}, {class_id}]", rps)
    number("extrapolation_caution", problem.extrapolation_caution)
    for service, highest in problem.seen_utilisation.items():
        known("seen_utilisation", service, services)
        number(f"seen_utilisation[{service}]", highest, above_zero=True)
    for class_id, factor in problem.latency_values.items():
        known("latency_values", class_id, problem.classes)
        number(f"latency_values[{class_id}]", factor, above_zero=True)
    for class_id, target in problem.tail_targets.items():
        known("tail_targets", class_id, problem.classes)
        number(f"tail_targets[{class_id}].p99_ms", target.p99_ms, above_zero=True)
        number(f"tail_targets[{class_id}].value", target.value, above_zero=True)
    for class_id, price in problem.tail_prices.items():
        known("tail_prices", class_id, problem.classes)
        number(f"tail_prices[{class_id}].mean", price.mean)
        number(f"tail_prices[{class_id}].spread", price.spread)
    for class_id in problem.classes:
        curve = problem.curves.get(class_id)
        if curve is None:
            found.append(f"curves: none for class {class_id!r}")
            continue
        number(f"curves[{class_id}].a_ms", curve.a_ms)
        if not (math.isfinite(curve.b_ms) and curve.a_ms + curve.b_ms >= 0):
            found.append(f"curves[{class_id}].b_ms: {curve.b_ms} must be a number of at least -a_ms")
        number(f"curves[{class_id}].norm_weight", curve.norm_weight, above_zero=True)
        found += _spread_problems(f"curves[{class_id}]", curve)
    for service, cluster in sorted(problem.placement):
        known("placement", cluster, problem.clusters)
        if service in services:
            if (service, cluster) not in problem.capacity_rps:
                found.append(f"capacity_rps: none for {service!r} in {cluster!r}")
            else:
                number(
                    f"capacity_rps[{service}, {cluster}]",
                    problem.capacity_rps[service, cluster],
                    above_zero=True,
                )
    for name in ("rtt_ms", "rtt_noise_ms", "egress_usd_per_gb", "threshold_rps", "failure_ms"):
        for pair, value in getattr(problem, name).items():
            number(f"{name}[{pair[0]}, {pair[1]}]", value)
    return found + side.problems(problem.constraints, problem.clusters)


def _spread_problems(key: str, curve: Curve) -> list[str]:
    """Returns what is wrong with the spread of a curve."""
    a, b = curve.sd_a_ms, curve.sd_b_ms
    if a is None or b is None:
        return [] if a is b else [f"{key}: sd_a_ms {a}, sd_b_ms {b}; both or none must be known"]
    if not (math.isfinite(a) and a >= 0):
        return [f"{key}.sd_a_ms: {a} must be a number of at least 0"]
    if not (math.isfinite(b) and a + b >= 0):
        return [f"{key}.sd_b_ms: {b} must be a number of at least -sd_a_ms"]
    return []
