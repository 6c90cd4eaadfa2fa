"""Builds the problem of one application from what is known of the mesh. Pure."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer.callers.averages import Averages
from spillway_optimizer.inputs.guardrails import constraints_of, latency_values, tail_targets
from spillway_optimizer.inputs.placements import Placed
from spillway_optimizer.inputs.refusals import Found, Hold, Kind, Refusal, Remarks, RouteId, Scope
from spillway_optimizer.inputs.scale_outs import ScaleOuts, declared
from spillway_optimizer.inputs.telemetry import CurveRow, RatioRow, Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.model import assumed, autoscalers, graph
from spillway_optimizer.model.autoscalers import Kept
from spillway_optimizer.model.capacities import Capacities, capacities, measured
from spillway_optimizer.model.curves import at_idle, curves
from spillway_optimizer.model.doubts import Doubt, Evidence, largest
from spillway_optimizer.model.failures import Rates, cost_ms, rates_without_callees
from spillway_optimizer.model.graph import Application
from spillway_optimizer.model.held import Nearest, held
from spillway_optimizer.model.held import now as held_now
from spillway_optimizer.model.network import Network
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.rules import RuleKey, Rules

# Capacity in rps of a service whose capacity is not known and does not matter. No load comes near
# it.
_AMPLE_RPS = 1e9
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True)
class Stages:
    """What the stages found for one application."""

    rows: tuple[RatioRow, ...]
    curves: Mapping[str, Curve]
    capacities: Capacities
    remarks: Remarks


@dataclass(frozen=True)
class Survey:
    """What the problems of all applications are built from."""

    telemetry: Telemetry
    topology: Topology
    clusters: tuple[str, ...]
    now: float
    board_max_age_s: float
    model_max_age_s: float
    placed: Placed
    curve_rows: Mapping[str, CurveRow]  # the newest row of each class
    network: Network
    guardrails: Guardrails
    in_force: Rules
    unknown: Unknown
    success: Rates
    failure_cost_ms: float
    averages: Averages
    model_free: Container[str]  # applications that have a problem without curves or capacities too
    scale_outs: ScaleOuts

    def stages(self, application: Application) -> Stages:
        """Runs the stages of one application: cycles, curves and capacities."""
        rows = graph.without_cycles(application)
        fitted = curves(
            self.telemetry,
            self.curve_rows,
            application.classes,
            self.now,
            self.board_max_age_s,
            self.model_max_age_s,
        )
        if application.name in self.model_free:
            fitted = assumed.curves(fitted, application.classes)
        capacity = self._capacity(application, fitted.value)
        remarks = Remarks.of([rows, fitted, capacity])
        known = capacity.value.capacity_rps
        unbounded = {service for (service, _), rps in known.items() if rps == _AMPLE_RPS}
        return Stages(rows.value, _constant(application, fitted.value, unbounded), capacity.value, remarks)

    def doubt(self, application: Application, stages: Stages) -> Doubt:
        """Returns the application's least certain prediction."""
        rows = measured(self.telemetry, self.now, self.model_max_age_s)
        known = Evidence(self.curve_rows, stages.capacities.capacity_rps, rows)
        return largest(self.telemetry, known, application.classes, self.now, self.board_max_age_s)

    def _placed(self, application: Application) -> list[tuple[str, str]]:
        return sorted(pair for pair in self.placed if pair[0] in application.services)

    def _capacity(self, application: Application, fitted: Mapping[str, Curve]) -> Found[Capacities]:
        """Returns the capacities of the application's services.

        A service without any known capacity is held and taken as constant if few calls go to it. If
        many calls go to it, that is a refusal.
        """
        needed = self._placed(application)
        found = capacities(self.telemetry, needed, fitted, self.now, self.model_max_age_s)
        if application.name in self.model_free:
            stand_ins = assumed.capacities(found, needed, _AMPLE_RPS)
            return Found(Capacities(stand_ins.value), stand_ins.notes)
        known, refusals, holds = dict(found.capacity_rps), [], []
        for service in sorted({s for s, c in needed if (s, c) not in known}):
            share = _share_of_calls(application, service)
            text = f"capacities: none for {service!r} in any cluster, and no CPU share to estimate it from"
            text += f"; it gets {share:.1%} of the calls"
            if share > graph.MOST_HELD:
                refusals.append(Refusal(Scope(Kind.SERVICE, service), text, no_model=True))
                continue
            routes = {graph.route(row) for row in application.rows}
            to = frozenset(r for r in routes if application.classes[r[1]] == service)
            holds.append(Hold(Scope(Kind.SERVICE, service), f"{text}; assumed to be constant", to))
            known |= {(s, c): _AMPLE_RPS for s, c in needed if s == service and (s, c) not in known}
        return Found(replace(found, capacity_rps=known), found.notes, tuple(refusals), tuple(holds))

    def problem(self, application: Application, stages: Stages) -> Problem:
        """Builds the problem. Raises ProblemError that lists everything that is wrong."""
        edges = tuple(
            Edge(
                row.source_class,
                row.class_id,
                row.calls_per_request,
                row.request_bytes,
                row.response_bytes,
                graph.wait_share(row),
            )
            for row in stages.rows
        )
        routes = {(application.classes[edge.source], edge.target) for edge in edges}
        whole = {route for hold in stages.remarks.holds for route in hold.routes} & routes
        return Problem(
            clusters=self.clusters,
            classes=application.classes,
            edges=edges,
            demand_rps=application.demand_rps,
            curves=stages.curves,
            capacity_rps=stages.capacities.capacity_rps,
            placement=frozenset(self._placed(application)),
            rtt_ms=self.network.rtt_ms,
            rtt_noise_ms=self.network.noise_ms,
            egress_usd_per_gb=self.network.egress_usd_per_gb,
            usd_per_ms=self.topology.usd_per_ms_per_million_requests / 1e6,
            threshold_rps={
                (s.name, p.cluster): p.threshold_rps
                for s in self.topology.services
                for p in s.placements
                if s.name in application.services and p.threshold_rps > 0
            },
            constraints=self._constraints(routes, whole),
            failure_ms=self._failures(application, stages),
            failure_cost_ms=self.failure_cost_ms,
            extrapolation_caution=self.guardrails.extrapolation_caution,
            seen_utilisation=self._seen(application),
            latency_values=latency_values(self.guardrails, application.demand_rps),
            tail_targets=tail_targets(self.guardrails, application.demand_rps),
            callers={key: each for key, each in self.averages.routes.items() if key[1:] in routes},
            unmodelled=assumed.classes(
                application.classes, stages.curves, stages.capacities.capacity_rps, _AMPLE_RPS
            )
            if application.name in self.model_free
            else frozenset(),
        )

    def kept(self, problem: Problem, stages: Stages) -> Kept:
        """Returns what must stay local of an application's calls, for declared autoscalers."""
        found = autoscalers.rooms(
            declared(self.topology),
            stages.capacities,
            self.telemetry.pods,
            self.success,
            self.scale_outs,
            self.guardrails.utilisation_ceiling,
            self.now,
        )
        near = Nearest(self.clusters, self.placed, self.network.rtt_ms)
        return autoscalers.kept(
            problem,
            found,
            lambda route: held_now(route, self.in_force, near),
            lambda route: held_now(route, {}, near),
        )

    def _seen(self, application: Application) -> Mapping[str, float]:
        """Returns the highest utilisation by service that a curve of its classes was fitted to.

        Empty where it does not matter.
        """
        if self.guardrails.extrapolation_caution == 0:
            return {}
        rows = (
            row for k in application.classes if (row := self.curve_rows.get(k)) is not None and row.u_max > 0
        )
        return {row.service: row.u_max for row in sorted(rows, key=lambda row: row.u_max)}

    def _failures(self, application: Application, stages: Stages) -> Mapping[tuple[str, str], float]:
        """Returns the cost of failures per call, in ms, of classes that fail by themselves.

        Failures that a class only passes on are counted where they begin.
        """
        if self.failure_cost_ms <= 0:
            return {}
        calls: dict[str, dict[str, float]] = {}
        for row in stages.rows:
            calls.setdefault(row.source_class, {})[row.class_id] = row.calls_per_request
        near = Nearest(self.clusters, self.placed, self.network.rtt_ms)

        def shares(*route: str) -> Mapping[str, float]:
            return held_now(RuleKey(*route), self.in_force, near)

        success_rates = rates_without_callees(self.success, application.classes, calls, shares)
        return {key: cost_ms(rate, self.failure_cost_ms) for key, rate in success_rates.items()}

    def _constraints(self, routes: set[RouteId], whole: set[RouteId]) -> Constraints:
        limits = constraints_of(self.guardrails, self.topology, routes, self.in_force)
        rtt_ms = self.network.rtt_ms
        kept = held(routes, whole, self.unknown, self.clusters, self.in_force, self.placed, rtt_ms)
        return replace(limits, held=kept.shares, unruled=kept.unruled)


def _constant(
    application: Application, fitted: Mapping[str, Curve], unbounded: set[str]
) -> Mapping[str, Curve]:
    """Returns the curves, with constant ones for classes of `unbounded` services."""
    return {
        k: at_idle(curve) if application.classes[k] in unbounded else curve for k, curve in fitted.items()
    }


def _share_of_calls(application: Application, service: str) -> float:
    """Returns the share of one service in all requests that the application's services get.

    An entry service counts as 1.
    """
    if any(application.classes[class_id] == service for _, class_id in application.demand_rps):
        return 1.0
    volume = graph.volumes(application.demand_rps, application.rows)
    service_rps = sum(rps for class_id, rps in volume.items() if application.classes.get(class_id) == service)
    return service_rps / max(sum(volume.values()), 1e-9)


def union(problems: list[Problem]) -> Problem | None:
    """Joins problems that share no class and no service into one; None without any.

    The edges keep the order of the problems.
    """
    if len(problems) < 2:
        return problems[0] if problems else None
    return replace(
        problems[0],
        classes=_merged(problem.classes for problem in problems),
        demand_rps=_merged(problem.demand_rps for problem in problems),
        curves=_merged(problem.curves for problem in problems),
        capacity_rps=_merged(problem.capacity_rps for problem in problems),
        threshold_rps=_merged(problem.threshold_rps for problem in problems),
        failure_ms=_merged(problem.failure_ms for problem in problems),
        seen_utilisation=_merged(problem.seen_utilisation for problem in problems),
        latency_values=_merged(problem.latency_values for problem in problems),
        tail_targets=_merged(problem.tail_targets for problem in problems),
        edges=tuple(edge for problem in problems for edge in problem.edges),
        placement=frozenset().union(*(problem.placement for problem in problems)),
        constraints=_together([problem.constraints for problem in problems]),
    )


def _merged(parts: Iterable[Mapping[_K, _V]]) -> dict[_K, _V]:
    return {key: value for part in parts for key, value in part.items()}


def _together(constraints: Iterable[Constraints]) -> Constraints:
    """Joins constraints.

    Limits of the mesh are the same in all of them. What concerns a route or class is merged.
    """
    constraints = list(constraints)
    joined: dict[str, Any] = {}  # by field of Constraints
    for item in fields(Constraints):
        values = [getattr(limits, item.name) for limits in constraints]
        if isinstance(values[0], frozenset):
            joined[item.name] = frozenset().union(*values)
        elif isinstance(values[0], Mapping):
            joined[item.name] = _merged(values)
    return replace(constraints[0], **joined)
