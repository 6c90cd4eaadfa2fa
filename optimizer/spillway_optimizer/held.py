"""Routes that are held: the shares that they keep, and the rules that go on being sent for them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.constraints import Route, Shares
from spillway_optimizer.found import RouteId
from spillway_optimizer.graph import service_of
from spillway_optimizer.rules import TOTAL, RuleKey, Rules


@dataclass(frozen=True)
class Held:
    """Shares by route, and those of the routes that keep them without a rule."""

    shares: Mapping[Route, Shares]
    unruled: frozenset[Route]


def held(
    routes: Iterable[RouteId],
    clusters: tuple[str, ...],
    in_force: Rules,
    placed: Collection[tuple[str, str]],
    rtt_ms: Mapping[tuple[str, str], float],
) -> Held:
    """What relays do now with these routes: the rule in force or, without one, the nearest cluster that has the
    service, the own one first."""
    shares: dict[Route, Shares] = {}
    unruled = set()
    for source in clusters:
        for service, class_id in routes:
            key = RuleKey(source, service, class_id)
            if key in in_force:
                shares[key] = {cluster: weight / TOTAL for cluster, weight in in_force[key].items()}
                continue
            callee = service_of(class_id)
            near = [c for c in clusters if (callee, c) in placed and (source, c) in rtt_ms]
            if near:
                shares[key] = {min(near, key=lambda c: (c != source, rtt_ms[source, c])): 1.0}
                unruled.add(key)
    return Held(shares, frozenset(unruled))


def of_routes(rules: Rules, routes: Collection[RouteId]) -> Rules:
    return {key: weights for key, weights in rules.items() if (key.source_service, key.class_id) in routes}


def of_services(rules: Rules, services: Collection[str]) -> Rules:
    """The rules of one application: of calls to its services, and of calls that these make."""
    return {
        key: weights
        for key, weights in rules.items()
        if key.source_service in services or service_of(key.class_id) in services
    }
