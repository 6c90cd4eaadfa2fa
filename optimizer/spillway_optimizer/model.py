"""Telemetry and topology -> Problem, or the reasons why there is none. Pure.

What is missing is taken from the next best source and said in a note; what cannot be replaced without
guessing at an answer is a refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer import ProblemError
from spillway_optimizer.capacities import capacities
from spillway_optimizer.consistency import contradictions
from spillway_optimizer.guardrails import constraints_of
from spillway_optimizer.placements import placements
from spillway_optimizer.problem import Curve, Edge, Problem
from spillway_optimizer.rules import Rules
from spillway_optimizer.telemetry import Telemetry


@dataclass(frozen=True)
class Limits:
    """What counts as fresh, and as worth modelling."""

    board_max_age_s: float = 15.0
    model_max_age_s: float = 3600.0
    min_network_samples: int = 5
    min_demand_rps: float = 0.01
    min_calls_per_request: float = 1e-3
    # Share of its service's load that a class without a curve may have.
    max_share_without_curve: float = 0.05


@dataclass(frozen=True)
class Window:
    """The span of telemetry that a problem was made from, Unix seconds."""

    start: float
    end: float

    @property
    def id(self) -> str:
        """Start and end in milliseconds, as streams/ writes its own."""
        return f"{round(self.start * 1000)}-{round(self.end * 1000)}"


@dataclass(frozen=True)
class Model:
    """`problem` is None exactly when `refusals` is not empty."""

    problem: Problem | None
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    window: Window
    classes: tuple[str, ...]  # every class that telemetry knows, also those without load now


def build(
    telemetry: Telemetry,
    topology: Topology,
    now: float,
    limits: Limits = Limits(),
    demand_rps: Mapping[tuple[str, str], float] | None = None,
    guardrails: Guardrails | None = None,
    in_force: Rules | None = None,
) -> Model:
    """`demand_rps` by (cluster, class) stands for the board's own rates, when a caller smooths them. `in_force`
    are the rules that the guardrails' maximum shift counts from."""
    draft = _Draft(telemetry, topology, now, limits)
    draft.demand(demand_rps)
    draft.consistent()
    draft.graph()
    draft.placement()
    draft.curves()
    draft.capacity()
    draft.network()
    return draft.finish(guardrails or Guardrails(), in_force)


class _Draft:
    """Collects the parts of one Problem, with refusals and notes; lives for one call of build."""

    def __init__(self, telemetry: Telemetry, topology: Topology, now: float, limits: Limits):
        self.telemetry, self.topology, self.now, self.limits = telemetry, topology, now, limits
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.refusals: list[str] = []
        self.notes: list[str] = []

    def demand(self, smoothed: Mapping[tuple[str, str], float] | None) -> None:
        """Requests offered at the entry: what services inside saw under overload is less than was wanted."""
        self.demand_rps: dict[tuple[str, str], float] = {}
        for cluster, board in sorted(self.telemetry.demand.items()):
            if cluster not in self.clusters:
                self.notes.append(f"demand: board of {cluster!r}, which the topology does not know, left out")
                continue
            newest = max((entry.at for entry in board.values()), default=None)
            if newest is None:
                continue
            if (age := self.now - newest) > self.limits.board_max_age_s:
                self.refusals.append(
                    f"demand: board of {cluster!r} is {age:.0f} s old; "
                    f"at most {self.limits.board_max_age_s:g} s is allowed"
                )
            for class_id, entry in sorted(board.items()):
                rps = smoothed.get((cluster, class_id), 0.0) if smoothed is not None else entry.rps
                if newest - entry.at <= self.limits.board_max_age_s and rps >= self.limits.min_demand_rps:
                    self.demand_rps[cluster, class_id] = rps
        if not self.demand_rps and not self.refusals:
            self.refusals.append("demand: no board has requests")

    def consistent(self) -> None:
        found = contradictions(
            self.telemetry, self.topology, self.demand_rps, self.now, self.limits.board_max_age_s
        )
        self.refusals += found.refusals
        self.notes += found.notes

    def graph(self) -> None:
        """Classes that the demand reaches, and the edges among them."""
        rows = {}
        for row in sorted(self.telemetry.call_ratios, key=lambda r: r.window_end):
            rows[row.source_class, row.class_id] = row
        fresh = {}
        for key, row in sorted(rows.items()):
            if self.now - row.window_end > self.limits.model_max_age_s:
                self.notes.append(f"call_ratios: {key[0]!r} -> {key[1]!r} is stale, left out")
            elif row.calls_per_request >= self.limits.min_calls_per_request:
                fresh[key] = row
        reached, todo = set(), {class_id for _, class_id in self.demand_rps}
        while todo:
            class_id = todo.pop()
            reached.add(class_id)
            todo |= {target for source, target in fresh if source == class_id} - reached
        self.ratio_rows = [row for (source, _), row in fresh.items() if source in reached]
        self.edges = tuple(
            Edge(r.source_class, r.class_id, r.calls_per_request, r.request_bytes, r.response_bytes)
            for r in self.ratio_rows
        )
        self.classes = {class_id: traffic_class.parse(class_id).service for class_id in sorted(reached)}

    def placement(self) -> None:
        entries = {(self.classes[class_id], cluster) for cluster, class_id in self.demand_rps}
        found = placements(self.telemetry, self.topology, entries, self.now, self.limits.board_max_age_s)
        self.placed = found.placed
        self.notes += found.notes
        self.refusals += found.refusals

    def curves(self) -> None:
        latest = {row.class_id: row for row in sorted(self.telemetry.curves, key=lambda r: r.fitted_at)}
        self.curve_rows = [latest[k] for k in self.classes if k in latest]
        self.curve: dict[str, Curve] = {}
        for class_id, service in self.classes.items():
            row = latest.get(class_id)
            if row is not None and self.now - row.fitted_at <= self.limits.model_max_age_s:
                a_ms = max(row.a_ms, 0.0)
                self.curve[class_id] = Curve(a_ms, max(row.b_ms, -a_ms), row.norm_weight)
                continue
            state = "none" if row is None else f"{self.now - row.fitted_at:.0f} s old"
            share, own_ms = self._observed(class_id, service)
            if own_ms is None or share > self.limits.max_share_without_curve:
                self.refusals.append(
                    f"curves: {class_id!r}: {state}; it has {share:.0%} of the load of {service!r}"
                )
            else:
                self.notes.append(f"curves: {class_id!r}: {state}; taken as constant {own_ms:.1f} ms")
                self.curve[class_id] = Curve(0.0, own_ms)

    def _observed(self, class_id: str, service: str) -> tuple[float, float | None]:
        """Share of its service's load and mean own time, from the load boards."""
        max_age_s = self.limits.board_max_age_s
        boards = self.telemetry.load.values()
        entries = [(k, e) for b in boards for k, e in b.items() if self.now - e.at <= max_age_s]
        own = [e for k, e in entries if k == class_id]
        total = sum(e.rps for k, e in entries if k.split(" ", 1)[0] == service)
        rps = sum(e.rps for e in own)
        if rps <= 0:
            return 0.0, own[0].exclusive_ms if own else None
        return rps / total, sum(e.rps * e.exclusive_ms for e in own) / rps

    def capacity(self) -> None:
        services = set(self.classes.values())
        needed = sorted(pair for pair in self.placed if pair[0] in services)
        found = capacities(self.telemetry, needed, self.curve, self.now, self.limits.model_max_age_s)
        self.capacity_rps = found.capacity_rps
        self.notes += found.notes
        self.refusals += found.refusals

    def network(self) -> None:
        """Measured where fresh, else declared; a pair that is not declared cannot be routed."""
        self.rtt, self.price = {}, {}
        for cluster in self.clusters:
            self.rtt[cluster, cluster] = self._measured(cluster, cluster) or 0.0
        for link in self.topology.links:
            pair = (link.source_cluster, link.destination_cluster)
            measured = self._measured(*pair)
            self.rtt[pair] = link.rtt_ms if measured is None else measured
            self.price[pair] = link.egress_usd_per_gb

    def _measured(self, source: str, destination: str) -> float | None:
        entry = self.telemetry.network.get((source, destination))
        if entry is None or self.now - entry.at > self.limits.board_max_age_s:
            return None
        return max(entry.mean_ms, 0.0) if entry.samples >= self.limits.min_network_samples else None

    def window(self) -> Window:
        """From the start of the oldest row used to the newest board."""
        starts = [_window_start(r.input_window, r.fitted_at) for r in self.curve_rows]
        starts += [_window_start(r.input_window, r.window_end) for r in self.ratio_rows]
        ends = [e.at for board in self.telemetry.demand.values() for e in board.values()]
        end = max(ends, default=self.now)
        return Window(min([*starts, end]), end)

    def finish(self, guardrails: Guardrails, in_force: Rules | None) -> Model:
        known = {r.class_id for r in self.telemetry.curves} | set(self.classes)
        known |= {k for board in self.telemetry.load.values() for k in board}
        problem = None
        if not self.topology.usd_per_ms_per_million_requests > 0:
            self.refusals.append("topology: usd_per_ms_per_million_requests must be a number above 0")
        if not self.refusals:
            try:
                problem = self._problem(guardrails, in_force)
            except ProblemError as error:
                self.refusals.append(str(error))
        notes = (*self.notes, *(f"left out: {reason}" for reason in self.telemetry.malformed))
        return Model(problem, tuple(self.refusals), notes, self.window(), tuple(sorted(known)))

    def _problem(self, guardrails: Guardrails, in_force: Rules | None) -> Problem:
        services = set(self.classes.values())
        routes = {(self.classes[edge.source], edge.target) for edge in self.edges}
        return Problem(
            clusters=self.clusters,
            classes=self.classes,
            edges=self.edges,
            demand_rps=self.demand_rps,
            curves=self.curve,
            capacity_rps=self.capacity_rps,
            placement=frozenset(pair for pair in self.placed if pair[0] in services),
            rtt_ms=self.rtt,
            egress_usd_per_gb=self.price,
            usd_per_ms=self.topology.usd_per_ms_per_million_requests / 1e6,
            threshold_rps={
                (s.name, p.cluster): p.threshold_rps
                for s in self.topology.services
                for p in s.placements
                if s.name in services and p.threshold_rps > 0
            },
            constraints=constraints_of(guardrails, self.topology, routes, in_force),
        )


def _window_start(window: str, fallback: float) -> float:
    start, _, end = window.partition("-")
    return int(start) / 1000 if start.isdigit() and end.isdigit() else fallback
