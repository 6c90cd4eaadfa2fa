"""Builds a problem per application from telemetry and topology, or says why it has none. Pure.

What is missing is taken from the next best source, and a note says so. What cannot be modelled is
held at its last rules, with the smallest possible scope: an edge, a service, or the application (a
refusal). Only what concerns all applications, such as a missing price of latency, refuses all of
them.
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer import ProblemError
from spillway_optimizer.callers.averages import Averages
from spillway_optimizer.inputs.consistency import contradictions
from spillway_optimizer.inputs.guardrails import without_use
from spillway_optimizer.inputs.placements import placements
from spillway_optimizer.inputs.refusals import MESH, Found, Hold, Kind, Refusal, Remarks, RouteId
from spillway_optimizer.inputs.scale_outs import NONE_EXPECTED, Place, ScaleOuts
from spillway_optimizer.inputs.telemetry import RatioRow, Telemetry
from spillway_optimizer.inputs.unknown import unknowns
from spillway_optimizer.model import graph
from spillway_optimizer.model.autoscalers import NOTHING_KEPT
from spillway_optimizer.model.building import Survey, union
from spillway_optimizer.model.curves import newest
from spillway_optimizer.model.demand import demand
from spillway_optimizer.model.doubts import NO_DOUBT, Doubt
from spillway_optimizer.model.failures import Rates, of_boards
from spillway_optimizer.model.graph import Application
from spillway_optimizer.model.network import network
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import Rules
from spillway_optimizer.problem.values import FAILURE_COST_MS

_NEVER_SEEN = Averages()


@dataclass(frozen=True)
class Limits:
    """How old telemetry may be, in seconds, and what failures cost."""

    board_max_age_s: float = 15.0
    model_max_age_s: float = 3600.0
    failure_cost_ms: float = FAILURE_COST_MS  # per call, at a success rate of one half
    most_error: float = math.inf  # standard error of a predicted time, relative to it; above it is a note


@dataclass(frozen=True)
class Window:
    """The span of telemetry that a problem was built from, in Unix seconds."""

    start: float
    end: float

    @property
    def id(self) -> str:
        """Start and end in milliseconds, in the format that streams/ uses for its own windows."""
        return f"{round(self.start * 1000)}-{round(self.end * 1000)}"


@dataclass(frozen=True)
class ApplicationModel:
    """The model of one application.

    `problem` is None if there are `refusals`, and for an application that telemetry does not show
    now.
    """

    name: str
    services: frozenset[str]
    problem: Problem | None
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    kept: frozenset[RouteId] = frozenset()  # routes outside the problem that keep their rules
    no_model: bool = False  # all that it is refused for is that curves or capacities are missing
    scaling: frozenset[Place] = frozenset()  # where an autoscaler is expected to add a pod
    pods: Mapping[Place, float] = field(default_factory=dict)  # that count, where autoscalers act
    doubt: Doubt = NO_DOUBT  # its least certain prediction

    @property
    def routes(self) -> frozenset[RouteId]:
        """Routes whose rules are decided with the application, or kept."""
        if self.problem is None:
            return self.kept
        classes = self.problem.classes
        return self.kept | {(classes[e.source], e.target) for e in self.problem.edges}


@dataclass(frozen=True)
class Model:
    """The models of all applications.

    A refusal of the whole mesh is also a refusal of each application.
    """

    applications: tuple[ApplicationModel, ...]
    mesh_refusals: tuple[str, ...]
    mesh_notes: tuple[str, ...]
    window: Window
    classes: tuple[str, ...]  # every class in telemetry, also those without load now

    @property
    def refusals(self) -> tuple[str, ...]:
        """Refusals of the mesh and of all applications, each once."""
        every = [r for application in self.applications for r in application.refusals]
        return tuple(dict.fromkeys([*self.mesh_refusals, *every]))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the mesh and of all applications, each once."""
        every = [note for application in self.applications for note in application.notes]
        return tuple(dict.fromkeys([*self.mesh_notes, *every]))

    @property
    def scaling(self) -> frozenset[Place]:
        """Where an autoscaler is expected to add a pod, by (service, cluster)."""
        return frozenset(place for application in self.applications for place in application.scaling)

    @cached_property
    def problem(self) -> Problem | None:
        """All applications that have a problem, joined into one; None if no application has."""
        return union([a.problem for a in self.applications if a.problem is not None])


def build(
    telemetry: Telemetry,
    topology: Topology,
    now: float,
    limits: Limits = Limits(),
    demand_rps: Mapping[tuple[str, str], float] | None = None,
    guardrails: Guardrails | None = None,
    in_force: Rules | None = None,
    success: Rates | None = None,
    averages: Averages = _NEVER_SEEN,
    model_free: Container[str] = (),
    scale_outs: ScaleOuts = NONE_EXPECTED,
) -> Model:
    """Builds the model of the mesh at Unix second `now`.

    - `demand_rps` by (cluster, class) replaces the boards' own rates when a caller smooths them.
    - `in_force` are the rules by which relays route. Holds keep them, and the maximum shift counts
      from them.
    - `success` rates by (class, cluster) replace those of the load boards when a caller averages
      them.
    - `averages` are what callers see. Applications in `model_free` have a problem although curves
      or capacities are missing, for policies that use neither.
    - `scale_outs`: those that were expected so far.
    """
    board_age, model_age = limits.board_max_age_s, limits.model_max_age_s
    clusters = tuple(cluster.name for cluster in topology.clusters)
    unknown = unknowns(telemetry, clusters, now, board_age)
    offered = demand(telemetry, clusters, demand_rps, now, board_age, unknown)
    odd = contradictions(telemetry, topology, offered.value, now, board_age, unknown)
    ratios = graph.ratios(telemetry, now, model_age)
    entries = {(graph.service_of(class_id), cluster) for cluster, class_id in offered.value}
    placed = placements(telemetry, topology, entries, now, unknown)
    rows = graph.placed_somewhere(ratios.value, placed.value)
    remarks = Remarks.of([offered, odd, ratios, placed, rows, _price(topology)])
    survey = Survey(
        telemetry, topology, clusters, now, board_age, model_age, placed.value, newest(telemetry),
        network(telemetry, topology, now, board_age), guardrails or Guardrails(), in_force or {}, unknown,
        of_boards(telemetry, unknown, now) if success is None else success, limits.failure_cost_ms,
        averages, model_free, scale_outs,
    )  # fmt: skip
    mesh = tuple(r.text for r in remarks.refusals if r.scope.kind is Kind.MESH)
    found = graph.applications(offered.value, rows.value)
    malformed = tuple(f"left out: {reason}" for reason in telemetry.malformed)
    return Model(
        tuple(_model(survey, application, mesh, remarks, limits.most_error) for application in found),
        mesh,
        (
            *unknown.notes(),
            *remarks.notes,
            *survey.network.notes,
            *without_use(survey.guardrails, offered.value, (row.class_id for a in found for row in a.rows)),
            *malformed,
        ),
        _window(telemetry, now, [a.classes for a in found], [row for a in found for row in a.rows]),
        _known(telemetry, [a.classes for a in found]),
    )


def _price(topology: Topology) -> Found[None]:
    if topology.usd_per_ms_per_million_requests > 0:
        return Found(None)
    text = "topology: usd_per_ms_per_million_requests must be a number above 0"
    return Found(None, refusals=(Refusal(MESH, text),))


def _model(
    survey: Survey, application: Application, mesh: tuple[str, ...], remarks: Remarks, most_error: float
) -> ApplicationModel:
    application_refusals = [refusal.text for refusal in remarks.refusals if application.has(refusal.scope)]
    held = [hold for hold in remarks.holds if application.has(hold.scope)]
    stages = survey.stages(application)
    problem, kept, refusals = (
        None,
        NOTHING_KEPT,
        [*mesh, *application_refusals, *(refusal.text for refusal in stages.remarks.refusals)],
    )
    if not refusals:
        try:
            problem = survey.problem(application, stages)
            kept = survey.kept(problem, stages)
            problem = kept.within(problem)
        except ProblemError as error:
            refusals.append(str(error))
    held += stages.remarks.holds
    doubt = survey.doubt(application, stages)
    doubtful = (f"uncertain: {doubt.text}",) if doubt.error > most_error else ()
    lacking = [refusal.text for refusal in stages.remarks.refusals if refusal.no_model]
    return ApplicationModel(
        application.name,
        application.services,
        problem,
        tuple(dict.fromkeys(refusals)),
        (*stages.remarks.notes, *kept.notes, *map(str, held), *doubtful),
        _kept(problem, held),
        no_model=bool(refusals) and set(refusals) == set(lacking),
        scaling=kept.expected,
        pods=kept.pods,
        doubt=doubt,
    )


def _kept(problem: Problem | None, holds: list[Hold]) -> frozenset[RouteId]:
    """Returns the held routes that are not in the problem."""
    routes = {route for hold in holds for route in hold.routes}
    if problem is None:
        return frozenset(routes)
    return frozenset(routes - {(problem.classes[e.source], e.target) for e in problem.edges})


def _known(telemetry: Telemetry, classes: list[Mapping[str, str]]) -> tuple[str, ...]:
    """Returns every class that curves, load boards or applications have."""
    known = {row.class_id for row in telemetry.curves} | {k for some in classes for k in some}
    return tuple(sorted(known | {k for board in telemetry.load.values() for k in board}))


def _window(
    telemetry: Telemetry, now: float, classes: list[Mapping[str, str]], rows: list[RatioRow]
) -> Window:
    """Returns the window from the start of the oldest row that is used to the newest board."""
    curves, used = newest(telemetry), {k for some in classes for k in some}
    starts = [_start(curves[k].input_window, curves[k].fitted_at) for k in used & curves.keys()]
    starts += [_start(row.input_window, row.window_end) for row in rows]
    end = max((e.at for board in telemetry.demand.values() for e in board.values()), default=now)
    return Window(min([*starts, end]), end)


def _start(window: str, fallback: float) -> float:
    start, _, end = window.partition("-")
    return int(start) / 1000 if start.isdigit() and end.isdigit() else fallback


def frozen(model: Model) -> Model:
    """Returns the model without problems and refusals.

    Nothing is decided for its applications then, and all of their rules are held.
    """
    applications = tuple(
        replace(application, problem=None, refusals=(), kept=frozenset())
        for application in model.applications
    )
    return replace(model, applications=applications, mesh_refusals=())
