"""The operator's guardrails as the optimizer keeps them.

The file is read again when it changes, and it becomes constraints of a problem. The publisher
enforces the same file. A routing within it leaves the publisher nothing to enforce.
"""

import logging
from collections.abc import Iterable, Mapping

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError
from spillway_contracts.guardrails import GuardrailFile, Guardrails

from spillway_optimizer.problem.constraints import Constraints, Route
from spillway_optimizer.problem.problem import TailTarget
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules
from spillway_optimizer.process.states import States


class Follower:
    """The guardrail file as one of several readers sees it. Something else reads it again."""

    def __init__(self, file: GuardrailFile):
        self.path, self._file, self._last = file.path, file, file.current

    @property
    def current(self) -> Guardrails:
        return self._file.current

    def changed(self) -> bool:
        """Returns whether the guardrails have changed since the last call."""
        before, self._last = self._last, self.current
        return self._last != before


def changed(file: GuardrailFile | Follower, states: States) -> bool:
    """Returns whether the content of the file has changed.

    A wrong file is logged and counted, and changes nothing. The last good guardrails stay in
    effect.
    """
    try:
        found = file.changed()
    except ContractError as error:
        kept = f"wrong; the last good ones stay: {error}"
        states.log("guardrails", kept, logging.WARNING, "guardrails_wrong")
        return False
    if found:
        states.log("guardrails", f"{file.current.model_dump_json(exclude_defaults=True)} of {file.path}")
    return found


def constraints_of(
    guardrails: Guardrails,
    topology: Topology,
    routes: Iterable[tuple[str, str]],
    in_force: Rules | None = None,
) -> Constraints:
    """Returns the constraints that the guardrails put on a problem.

    `routes` are the problem's routes (source service, class that is called). `in_force` are the
    rules by which relays route now; None when they route local-first. Shares are fractions of 1,
    and weights in the file are parts of 10 000.
    """
    routes = sorted(set(routes))
    shift = guardrails.maximum_shift
    return Constraints(
        denied=_denied(guardrails, topology, {class_id for _, class_id in routes}),
        pinned=pinned(guardrails),
        min_local_share=guardrails.minimum_local_share / TOTAL,
        max_shift=1.0 if shift is None else shift / TOTAL,
        in_force={} if shift is None else _before(topology, routes, in_force or {}),
        egress_usd_per_hour=guardrails.egress_budget_usd_per_hour,
        utilisation_ceiling=guardrails.utilisation_ceiling,
        drained=frozenset(guardrails.drained_clusters),
        min_share=guardrails.minimum_share / TOTAL,
        max_destinations=guardrails.maximum_destinations,
        whole=frozenset(guardrails.whole_classes) & {class_id for _, class_id in routes},
    )


def latency_values(guardrails: Guardrails, demand: Iterable[tuple[str, str]]) -> Mapping[str, float]:
    """Returns the values of the classes that users call. `demand`: pairs (cluster, entry class)."""
    entries = {class_id for _, class_id in demand}
    return {v.traffic_class: v.value for v in guardrails.latency_values if v.traffic_class in entries}


def tail_targets(guardrails: Guardrails, demand: Iterable[tuple[str, str]]) -> Mapping[str, TailTarget]:
    """Returns the tail targets of the classes that users call. `demand`: see `latency_values`."""
    entries = {class_id for _, class_id in demand}
    return {
        t.traffic_class: TailTarget(t.p99_ms, t.value)
        for t in guardrails.tail_targets
        if t.traffic_class in entries
    }


def without_use(
    guardrails: Guardrails, demand: Iterable[tuple[str, str]], called: Iterable[str]
) -> tuple[str, ...]:
    """Returns notes about classes in the file for which it has no effect now.

    These are values and tail targets of classes that users do not call, and whole classes that no
    service calls. `called`: classes that services call.
    """
    demand = list(demand)
    used, targets = latency_values(guardrails, demand), set(called)
    tails = tail_targets(guardrails, demand)
    values = (
        f"latency_values: users make no requests of {v.traffic_class!r} now; its value has no effect. The value "
        "of a class that services call is that of the requests behind its calls"
        for v in guardrails.latency_values
        if v.traffic_class not in used
    )
    whole = (
        f"whole_classes: no service calls {class_id!r} now; it has no rule that could keep it whole"
        for class_id in guardrails.whole_classes
        if class_id not in targets
    )
    targeted = (
        f"tail_targets: users make no requests of {t.traffic_class!r} now; its target has no effect. A class that "
        "services call needs none: its time is part of the p99 of the requests behind its calls"
        for t in guardrails.tail_targets
        if t.traffic_class not in tails
    )
    return (*values, *whole, *targeted)


def _denied(guardrails: Guardrails, topology: Topology, classes: set[str]) -> frozenset[tuple[str, str, str]]:
    clusters = [cluster.name for cluster in topology.clusters]
    return frozenset(
        (source, class_id, destination)
        for denial in guardrails.denied_destinations
        for source in clusters
        for class_id in classes
        if denial.matches(source, class_id)
        for destination in denial.clusters
    )


def pinned(guardrails: Guardrails) -> Mapping[Route, Mapping[str, float]]:
    """Returns the shares of every pinned route.

    There are none while the kill switch is on, because the publisher then publishes only
    local-first.
    """
    return {
        RuleKey(pin.source_cluster, pin.source_service, pin.traffic_class): {
            cluster: weight / TOTAL for cluster, weight in sorted(pin.destinations.items()) if weight
        }
        for pin in ([] if guardrails.kill else guardrails.pins)
    }


def _before(
    topology: Topology, routes: list[tuple[str, str]], in_force: Rules
) -> Mapping[Route, Mapping[str, float]]:
    """Returns where the calls of each route go now, as shares by cluster.

    They follow the route's rule, or local-first where the topology declares the service locally. A
    route with neither is left out: it has no shares from which a shift could be counted.
    """
    declared = {(s.name, p.cluster) for s in topology.services for p in s.placements}
    before: dict[Route, Mapping[str, float]] = {}
    for source in (cluster.name for cluster in topology.clusters):
        for service, class_id in routes:
            key = RuleKey(source, service, class_id)
            if key in in_force:
                before[key] = {cluster: weight / TOTAL for cluster, weight in in_force[key].items()}
            elif (class_id.split(" ", 1)[0], source) in declared:
                before[key] = {source: 1.0}
    return before
