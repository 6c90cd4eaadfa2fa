"""Held routes: the shares that they keep, and which of them have no rule. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.inputs.refusals import RouteId
from spillway_optimizer.inputs.unknown import NOTHING, Unknown
from spillway_optimizer.model.graph import service_of
from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules

_WHOLE = 1 - 1e-6


@dataclass(frozen=True)
class Held:
    """What stays as it is.

    `shares` has the shares that stay, by route and destination. `unruled` are the routes whose
    calls are all held and that have no rule.
    """

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
    """Returns what stays as relays do it now.

    All shares of a route stay if it is in `whole`, or if its caller is unknown. Otherwise the
    shares of unknown destinations stay. Without a rule, relays send calls to the nearest cluster
    that has the service, their own first.
    """
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
            fixed: Shares = {c: before.get(c, 0.0) for c in lost}
            if everything or sum(fixed.values()) > _WHOLE:
                fixed = before
                if key not in in_force and before:
                    unruled.add(key)
            if fixed:
                shares[key] = fixed
    return Held(shares, frozenset(unruled))


class Nearest:
    """The clusters to which relays send calls without a rule, each looked up once."""

    def __init__(
        self,
        clusters: tuple[str, ...],
        placed: Collection[tuple[str, str]],
        rtt_ms: Mapping[tuple[str, str], float],
    ):
        self._clusters, self._placed, self._rtt_ms = clusters, placed, rtt_ms
        self._known: dict[tuple[str, str], str | None] = {}

    def of(self, source: str, service: str) -> str | None:
        """Returns the cluster; None: nothing can serve the calls."""
        if (source, service) not in self._known:
            near = [c for c in self._clusters if (service, c) in self._placed and (source, c) in self._rtt_ms]
            first = min(near, key=lambda c: (c != source, self._rtt_ms[source, c]), default=None)
            self._known[source, service] = first
        return self._known[source, service]


def now(key: RuleKey, in_force: Rules, near: Nearest) -> Shares:
    """Returns where the calls of a route go now; empty where nothing can serve them."""
    if key in in_force:
        return {cluster: weight / TOTAL for cluster, weight in in_force[key].items()}
    cluster = near.of(key.source_cluster, service_of(key.class_id))
    return {} if cluster is None else {cluster: 1.0}
