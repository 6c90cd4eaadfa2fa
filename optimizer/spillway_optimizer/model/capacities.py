"""Capacity of each (service, cluster), from the best source that there is.

The sources are, in this order: a measurement there, measurements of the same service in other
clusters, and the current CPU share. A capacity was measured with a number of pods, and is scaled to
the live pods (connected Envoys). Where either number is unknown, the capacity stays as it was
measured: unknown is neither zero nor a factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway_optimizer.inputs.telemetry import CapacityRow, Telemetry
from spillway_optimizer.problem.problem import Curve

# Below this CPU share, the one-point estimate load / share says more about idle work than about
# capacity.
_LEAST_CPU = 0.05
# Part of its assumed capacity that a destination gets before its pods have shown what they can do.
START = 0.25
# Factor of one step of a ramp, and limit of what new pods may add: at most this many times what has
# been seen.
GROWTH = 2.0
_BOARD_MAX_AGE_S = 15.0


@dataclass(frozen=True)
class Capacities:
    """Capacities, how each differs from a measurement, and services that have no source.

    Both maps are by (service, cluster), in requests of the baseline class. `whole_rps` is what all
    live pods have if the new ones are as good as the others.
    """

    capacity_rps: Mapping[tuple[str, str], float]
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    whole_rps: Mapping[tuple[str, str], float] = field(default_factory=dict)


def capacities(
    telemetry: Telemetry,
    needed: list[tuple[str, str]],
    curves: Mapping[str, Curve],
    now: float,
    max_age_s: float,
) -> Capacities:
    """Returns a capacity for every (service, cluster) in `needed`.

    A service without any source is a refusal.
    """
    rows = measured(telemetry, now, max_age_s)
    found, whole_rps, notes, refusals = {}, {}, [], []
    for service, cluster in needed:
        name = f"{service!r} in {cluster!r}"
        row = rows.get((service, cluster))
        likes = [row for (s, _), row in rows.items() if s == service]
        if row is not None:
            rps, whole, note = _of_live_pods(row, telemetry)
        elif likes:
            rps, whole, note = _unmeasured(likes, cluster, telemetry, curves, now)
        elif (estimate := _from_cpu(telemetry, service, curves)) is not None:
            rps, whole, note = _unmeasured([estimate], cluster, telemetry, curves, now)
            note += f" (none anywhere: from the load and the CPU share of {estimate.cluster!r} now)"
        else:
            refusals.append(
                f"capacities: none for {service!r} in any cluster, and no CPU share to estimate it from"
            )
            continue
        found[service, cluster], whole_rps[service, cluster] = rps, whole
        if note:
            notes.append(f"capacities: {name}: {note}")
    return Capacities(found, tuple(notes), tuple(dict.fromkeys(refusals)), whole_rps)


def measured(telemetry: Telemetry, now: float, max_age_s: float) -> dict[tuple[str, str], CapacityRow]:
    """Returns the newest row of each (service, cluster) that is not too old.

    A row that streams assumed from another cluster is not a measurement.
    """
    rows = sorted(telemetry.capacities, key=lambda r: r.measured_at)
    newest = {(row.service, row.cluster): row for row in rows if now - row.measured_at <= max_age_s}
    return {pair: row for pair, row in newest.items() if row.capacity_rps > 0 and row.evidence != "assumed"}


def _of_live_pods(row: CapacityRow, telemetry: Telemetry) -> tuple[float, float, str]:
    """Returns the capacity of the pods that live now, the whole one, and a note.

    The note is '' if nothing has changed. A pod that was not there some minutes ago counts as START
    of a pod. During a rollout, old and new pods are both connected and counted for a while, and the
    new ones need not serve yet.
    """
    if row.pods <= 0:
        return row.capacity_rps, row.capacity_rps, ""
    live = telemetry.pods.get((row.cluster, row.service), 0) or row.pods
    settled = min(row.settled or row.pods, row.pods)
    worth = min(live, settled) + START * max(live - settled, 0.0)
    whole = row.capacity_rps * live / row.pods
    if worth == row.pods:
        return row.capacity_rps, whole, ""
    rps = row.capacity_rps * min(worth, GROWTH * row.pods) / row.pods
    seen = f"{row.capacity_rps:.0f} req/s were measured with {row.pods:.0f} pods, {live:.0f} are connected"
    fresh = f", {live - settled:.0f} of them for a few minutes only" if live > settled else ""
    return rps, whole, f"{seen}{fresh}: {rps:.0f} req/s"


def _unmeasured(
    likes: list[CapacityRow], cluster: str, telemetry: Telemetry, curves: Mapping[str, Curve], now: float
) -> tuple[float, float, str]:
    """Returns an assumed capacity where none was measured, the whole one, and a note.

    Each live pod is taken to be as good as the worst of the same service elsewhere. The capacity is
    on a ramp: START of it at first, then GROWTH times the load that the pods serve.
    """
    service, least = likes[0].service, min(row.capacity_rps for row in likes)
    if not telemetry.placement or any(row.cluster == cluster for row in likes):
        # Either a model from a file, which has no pods and no next step, or an estimate from the
        # CPU share of this cluster itself.
        return least, least, f"none was measured; {least:.0f} req/s is assumed, the lowest of this service"
    live = telemetry.pods.get((cluster, service), 0)
    per_pod = [rps for row in likes if (rps := _per_pod(row, telemetry)) is not None]
    if per_pod:
        whole = min(per_pod) * max(live, 1)
        pods = f"{live} connected pods" if live > 0 else "an unknown number of pods, assumed to be 1,"
        why = f"{pods} of {min(per_pod):.0f} req/s, the lowest of this service"
    else:
        whole, why = least, f"{least:.0f} req/s, the lowest of this service, for an unknown number of pods"
    served = _served(telemetry, service, cluster, curves, now)
    rps = min(whole, max(START * whole, GROWTH * served))
    ramp = f"; {rps:.0f} req/s at first, while {served:.0f} are served" if rps < whole else ""
    return rps, whole, f"none was measured; {why}, is assumed{ramp}"


def _per_pod(row: CapacityRow, telemetry: Telemetry) -> float | None:
    pods = row.pods if row.pods > 0 else telemetry.pods.get((row.cluster, row.service), 0)
    return row.capacity_rps / pods if pods > 0 else None


def _served(
    telemetry: Telemetry, service: str, cluster: str, curves: Mapping[str, Curve], now: float
) -> float:
    """Normalised requests per second that succeed there now."""
    return sum(
        entry.rps * (1 - entry.failed_share) * curves[class_id].norm_weight
        for class_id, entry in telemetry.load.get(cluster, {}).items()
        if class_id.split(" ", 1)[0] == service and class_id in curves and now - entry.at <= _BOARD_MAX_AGE_S
    )


def _from_cpu(telemetry: Telemetry, service: str, curves: Mapping[str, Curve]) -> CapacityRow | None:
    """Estimates a capacity as normalised load over CPU share, in the cluster that is busiest.

    This is SLATE appendix E.1 with the origin as the second point. Returns None where no CPU share
    is above _LEAST_CPU.
    """
    best_cpu, estimate = _LEAST_CPU, None
    for cluster, board in telemetry.load.items():
        entries = [(k, e) for k, e in board.items() if k.split(" ", 1)[0] == service and k in curves]
        cpu = max((e.cpu for _, e in entries if e.cpu is not None), default=0.0)
        load = sum(e.rps * curves[k].norm_weight for k, e in entries)
        if cpu > best_cpu and load > 0:
            best_cpu, estimate = cpu, CapacityRow(0.0, "", cluster, service, load / cpu)
    return estimate
