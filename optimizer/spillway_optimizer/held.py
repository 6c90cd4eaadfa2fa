"""Routes that are held: the shares that they keep, and the rules that go on being sent for them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.constraints import Route, Shares
from spillway_optimizer.found import RouteId
from spillway_optimizer.graph import service_of
from spillway_optimizer.rules import TOTAL, RuleKey, Rules
from spillway_optimizer.unknown import Unknown

_WHOLE = 1 - 1e-6


@dataclass(frozen=True)
class Held:
    """Shares by route and destination that stay, and the routes whose calls all stay without a rule."""

    shares: Mapping[Route, Shares]
    unruled: frozenset[Route]


def held(
    routes: Iterable[RouteId],
    whole: Collection[RouteId],
    unknown: Unknown,
    clusters: tuple[str, ...],
    in_force: Rules,
    placed: Collection[tuple[str, str]],
    rtt_ms: Mapping[tuple[str, str], float],
) -> Held:
    """What relays do now with these routes stays: all of it of those in `whole` and of callers that are unknown, else
    the shares of destinations that are unknown. Without a rule relays send to the nearest cluster that has the
    service, the own one first."""
    shares: dict[Route, Shares] = {}
    unruled = set()
    for source in clusters:
        for service, class_id in routes:
            key, callee = RuleKey(source, service, class_id), service_of(class_id)
            everything = (service, class_id) in whole or unknown.why(service, source) is not None
            lost = [c for c in clusters if unknown.why(callee, c) is not None]
            if not (everything or lost):
                continue
            before = _now(key, callee, clusters, in_force, placed, rtt_ms)
            fixed = {c: before.get(c, 0.0) for c in lost}
            if everything or sum(fixed.values()) > _WHOLE:
                fixed = before
                if key not in in_force and before:
                    unruled.add(key)
            if fixed:
                shares[key] = fixed
    return Held(shares, frozenset(unruled))


def _now(
    key: RuleKey,
    callee: str,
    clusters: tuple[str, ...],
    in_force: Rules,
    placed: Collection[tuple[str, str]],
    rtt_ms: Mapping[tuple[str, str], float],
) -> Shares:
    """Empty where nothing can serve it."""
    if key in in_force:
        return {cluster: weight / TOTAL for cluster, weight in in_force[key].items()}
    source = key.source_cluster
    near = [c for c in clusters if (callee, c) in placed and (source, c) in rtt_ms]
    return {min(near, key=lambda c: (c != source, rtt_ms[source, c])): 1.0} if near else {}
