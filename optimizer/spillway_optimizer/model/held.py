"""Routes that are held: the shares that they keep, and the rules that go on being sent for them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.inputs.found import RouteId
from spillway_optimizer.inputs.unknown import NOTHING, Unknown
from spillway_optimizer.model.graph import service_of
from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules

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
    near = Nearest(clusters, placed, rtt_ms)
    for service, class_id in routes if whole or unknown != NOTHING else ():
        callee = service_of(class_id)
        lost = [c for c in clusters if unknown.why(callee, c) is not None]
        for source in clusters:
            key = RuleKey(source, service, class_id)
            everything = (service, class_id) in whole or unknown.why(service, source) is not None
            if not (everything or lost):
                continue
            before = now(key, in_force, near)
            fixed = {c: before.get(c, 0.0) for c in lost}
            if everything or sum(fixed.values()) > _WHOLE:
                fixed = before
                if key not in in_force and before:
                    unruled.add(key)
            if fixed:
                shares[key] = fixed
    return Held(shares, frozenset(unruled))


class Nearest:
    """Where relays send calls without a rule: by (source cluster, service), looked up once each."""

    def __init__(
        self,
        clusters: tuple[str, ...],
        placed: Collection[tuple[str, str]],
        rtt_ms: Mapping[tuple[str, str], float],
    ):
        self._clusters, self._placed, self._rtt_ms = clusters, placed, rtt_ms
        self._known: dict[tuple[str, str], str | None] = {}

    def of(self, source: str, service: str) -> str | None:
        """None: nothing can serve it."""
        if (source, service) not in self._known:
            near = [c for c in self._clusters if (service, c) in self._placed and (source, c) in self._rtt_ms]
            first = min(near, key=lambda c: (c != source, self._rtt_ms[source, c]), default=None)
            self._known[source, service] = first
        return self._known[source, service]


def now(key: RuleKey, in_force: Rules, near: Nearest) -> Shares:
    """Where the calls of a route go by now. Empty where nothing can serve them."""
    if key in in_force:
        return {cluster: weight / TOTAL for cluster, weight in in_force[key].items()}
    cluster = near.of(key.source_cluster, service_of(key.class_id))
    return {} if cluster is None else {cluster: 1.0}
