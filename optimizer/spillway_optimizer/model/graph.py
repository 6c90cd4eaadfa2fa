"""The call graph: what calls what, which calls cannot be modelled, and its applications. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from spillway_contracts import traffic_class

from spillway_optimizer.inputs.refusals import Found, Hold, Kind, Refusal, RouteId, Scope
from spillway_optimizer.inputs.telemetry import RatioRow, Telemetry
from spillway_optimizer.model.demand import Demand

_LEAST_CALLS_PER_REQUEST = 1e-3
# Largest share of an application's requests that may go over an edge that is cut, or to a service
# that is held.
MOST_HELD = 0.05
LEAST_WAIT = 0.25  # of a wait share
_ROUNDS = 50  # rounds in which calls cause further calls, when volumes are added up
Rows = Mapping[tuple[str, str], RatioRow]  # by (calling class, class that is called)


@dataclass(frozen=True)
class Application:
    """Classes that share no service with other classes and call none of theirs."""

    name: str  # the name of its first entry service in alphabetical order
    classes: Mapping[str, str]  # class id -> service
    rows: tuple[RatioRow, ...]
    demand_rps: Demand

    @property
    def services(self) -> frozenset[str]:
        return frozenset(self.classes.values())

    def has(self, scope: Scope) -> bool:
        """Returns whether `scope` is a part of this application, or the application itself."""
        if scope.kind is Kind.SERVICE:
            return scope.name in self.services
        if scope.kind is Kind.APPLICATION:
            return scope.name == self.name
        return scope.kind in (Kind.CLASS, Kind.EDGE) and scope.name.split(" -> ")[0] in self.classes


def service_of(class_id: str) -> str:
    """Returns the service of a class id."""
    return traffic_class.parse(class_id).service


def edge(row: RatioRow) -> Scope:
    """Returns the scope of a row's edge."""
    return Scope(Kind.EDGE, f"{row.source_class} -> {row.class_id}")


def route(row: RatioRow) -> RouteId:
    """Returns the route of a row: source service, class that is called."""
    return service_of(row.source_class), row.class_id


def wait_share(row: RatioRow) -> float:
    """Returns the share of a row's calls that the caller waits for; 1 where it is unknown.

    It is a slope at the present times: what never ends last now would, if it went far enough away.
    So it is at least LEAST_WAIT.
    """
    return 1.0 if row.wait_share is None else min(max(row.wait_share, LEAST_WAIT), 1.0)


def ratios(telemetry: Telemetry, now: float, max_age_s: float) -> Found[Rows]:
    """Returns the newest row of every edge, without rows that are old or have almost no calls."""
    newest = {}
    for row in sorted(telemetry.call_ratios, key=lambda r: r.window_end):
        newest[row.source_class, row.class_id] = row
    fresh, notes = {}, []
    for key, row in sorted(newest.items()):
        if now - row.window_end > max_age_s:
            notes.append(f"call_ratios: {key[0]!r} -> {key[1]!r} is stale, left out")
        elif row.calls_per_request >= _LEAST_CALLS_PER_REQUEST:
            fresh[key] = row
    return Found(fresh, tuple(notes))


def placed_somewhere(rows: Rows, placed: Iterable[tuple[str, str]]) -> Found[Rows]:
    """Leaves out calls to services that no cluster has.

    Nothing can be routed to such a service, and its time is not part of the time measured at its
    callers. The routes of these calls are held, and so are the routes of all calls that only they
    cause.
    """
    services = {service for service, _ in placed}
    kept = {key: row for key, row in rows.items() if service_of(row.class_id) in services}
    holds = []
    for key, row in rows.items():
        if key in kept or service_of(row.source_class) not in services:
            continue
        below = [rows[k] for k in _below(rows, row.class_id)]
        callee = service_of(row.class_id)
        text = (
            f"neither topology, heartbeats nor load boards have {callee!r}; the time of these calls is not in "
            "predictions"
        )
        holds.append(
            Hold(edge(row), text, frozenset(map(route, [row, *below])) - set(map(route, kept.values())))
        )
    return Found(kept, holds=tuple(holds))


def _below(rows: Rows, class_id: str) -> set[tuple[str, str]]:
    """Returns the edges that requests of a class lead to, directly or through other calls."""
    seen: set[tuple[str, str]] = set()
    todo = [class_id]
    while todo:
        source = todo.pop()
        new = {key for key in rows if key[0] == source} - seen
        seen |= new
        todo += [target for _, target in new]
    return seen


def applications(demand: Demand, rows: Rows) -> tuple[Application, ...]:
    """Splits all classes that the demand reaches into applications, sorted by name."""
    calls: dict[str, list[RatioRow]] = {}
    for row in rows.values():
        calls.setdefault(row.source_class, []).append(row)
    reached, todo = set(), {class_id for _, class_id in demand}
    while todo:
        class_id = todo.pop()
        reached.add(class_id)
        todo |= {row.class_id for row in calls.get(class_id, ())} - reached
    classes = {class_id: service_of(class_id) for class_id in sorted(reached)}
    used = [row for row in rows.values() if row.source_class in reached]
    groups: dict[str, list[str]] = {}
    calls_of = [(row.source_class, row.class_id) for row in used]
    component = components(classes, calls_of)
    for class_id in classes:
        groups.setdefault(component[class_id], []).append(class_id)
    found = [_application({k: classes[k] for k in group}, used, demand) for group in groups.values()]
    return tuple(sorted(found, key=lambda application: application.name))


def _application(classes: Mapping[str, str], rows: list[RatioRow], demand: Demand) -> Application:
    application_demand = {key: rps for key, rps in demand.items() if key[1] in classes}
    name = min(classes[class_id] for _, class_id in application_demand)
    return Application(
        name, classes, tuple(row for row in rows if row.source_class in classes), application_demand
    )


def components(classes: Mapping[str, str], links: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Maps each class to a name that it shares with exactly the classes of its component.

    `classes`: class id -> service. Classes of one service are in one component. `links`: further
    pairs of classes, or of nodes (see `node`), that are.
    """
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    pairs = [(class_id, node(service)) for class_id, service in classes.items()]
    for a, b in [*pairs, *links]:
        parent[find(a)] = find(b)
    return {class_id: find(class_id) for class_id in classes}


def node(service: str) -> str:
    """Returns the name of a service among those of classes, which begin with a service."""
    return f"service {service}"


def without_cycles(application: Application) -> Found[tuple[RatioRow, ...]]:
    """Cuts the weakest edge of every cycle and holds its route.

    It is a refusal if the weakest edge of a cycle has more than MOST_HELD of the application's
    requests.
    """
    rows, holds = list(application.rows), []
    while cycle := _cycle(rows):
        flow = volumes(application.demand_rps, application.rows)
        among = [row for row in rows if (row.source_class, row.class_id) in cycle]
        weakest = min(among, key=lambda row: row.calls_per_request * flow.get(row.source_class, 0.0))
        calls = weakest.calls_per_request * flow.get(weakest.source_class, 0.0)
        share = calls / max(sum(application.demand_rps.values()), 1e-9)
        path = " -> ".join([source for source, _ in cycle] + [cycle[0][0]])
        text = f"edges: classes call each other in a cycle in {share:.1%} of the requests: {path}"
        if share > MOST_HELD:
            return Found((), refusals=(Refusal(Scope(Kind.APPLICATION, application.name), text),))
        rows.remove(weakest)
        holds.append(Hold(edge(weakest), text, frozenset([route(weakest)]) - set(map(route, rows))))
    return Found(tuple(rows), holds=tuple(holds))


def _cycle(rows: Iterable[RatioRow]) -> list[tuple[str, str]]:
    """Returns the edges of one cycle in their order; empty: there is none."""
    callers: dict[str, list[str]] = {}
    for row in rows:
        if row.source_class == row.class_id:
            return [(row.class_id, row.class_id)]
        callers.setdefault(row.class_id, []).append(row.source_class)
    try:
        TopologicalSorter(callers).prepare()
    except CycleError as error:
        path = error.args[1]
        return list(zip(path, path[1:], strict=False))
    return []


def volumes(demand: Demand, rows: Iterable[RatioRow]) -> Mapping[str, float]:
    """Returns the requests per second of every class, in all clusters together.

    Calls in a cycle are followed for _ROUNDS rounds.
    """
    offered: dict[str, float] = {}
    for (_, class_id), rps in demand.items():
        offered[class_id] = offered.get(class_id, 0.0) + rps
    rows, volume = list(rows), dict(offered)
    for _ in range(_ROUNDS):
        after = dict(offered)
        for row in rows:
            calls = row.calls_per_request * volume.get(row.source_class, 0.0)
            after[row.class_id] = after.get(row.class_id, 0.0) + calls
        if after == volume:
            break
        volume = after
    return volume
