"""Capacity of each (service, cluster): measured there, else elsewhere, else from the CPU share now."""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway_optimizer.problem import Curve
from spillway_optimizer.telemetry import Telemetry

# Below this share of CPU the one-point estimate load / share says more about idle work than capacity.
_LEAST_CPU = 0.05


@dataclass(frozen=True)
class Capacities:
    capacity_rps: Mapping[tuple[str, str], float]  # (service, cluster), requests of the baseline class
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


def capacities(
    telemetry: Telemetry,
    needed: list[tuple[str, str]],
    curves: Mapping[str, Curve],
    now: float,
    max_age_s: float,
) -> Capacities:
    """For every (service, cluster) in `needed`; one that has no source at all is a refusal."""
    measured = {}
    for row in sorted(telemetry.capacities, key=lambda r: r.measured_at):
        if now - row.measured_at <= max_age_s and row.capacity_rps > 0:
            measured[row.service, row.cluster] = row.capacity_rps
    found, notes, refusals = {}, [], []
    for service, cluster in needed:
        elsewhere = [rps for (s, _), rps in measured.items() if s == service]
        if (service, cluster) in measured:
            found[service, cluster] = measured[service, cluster]
        elif elsewhere:
            found[service, cluster] = sum(elsewhere) / len(elsewhere)
            notes.append(
                f"capacities: none for {service!r} in {cluster!r}; the mean of its other clusters, "
                f"{found[service, cluster]:.0f} req/s, is assumed"
            )
        elif (estimate := _from_cpu(telemetry, service, curves)) is not None:
            found[service, cluster] = estimate
            notes.append(
                f"capacities: none for {service!r} anywhere; {estimate:.0f} req/s in {cluster!r} "
                "follows from its load and CPU share now"
            )
        else:
            refusals.append(
                f"capacities: none for {service!r} in any cluster, and no CPU share to estimate it from"
            )
    return Capacities(found, tuple(notes), tuple(dict.fromkeys(refusals)))


def _from_cpu(telemetry: Telemetry, service: str, curves: Mapping[str, Curve]) -> float | None:
    """Normalised load over CPU share (SLATE appendix E.1 with the origin as its second point), in the
    cluster that is busiest."""
    best_cpu, estimate = _LEAST_CPU, None
    for board in telemetry.load.values():
        entries = [(k, e) for k, e in board.items() if k.split(" ", 1)[0] == service and k in curves]
        cpu = max((e.cpu for _, e in entries if e.cpu is not None), default=0.0)
        load = sum(e.rps * curves[k].norm_weight for k, e in entries)
        if cpu > best_cpu and load > 0:
            best_cpu, estimate = cpu, load / cpu
    return estimate
