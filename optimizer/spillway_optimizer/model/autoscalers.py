"""Keeps calls local that an autoscaler must see, so that it adds the pods they need. Pure.

An autoscaler acts on the utilisation of its pods: n pods at utilisation u become ceil(n * u /
target), and nothing happens within 10 % of the target. Whoever sends calls away at a lower
utilisation hides the load from it. Then no pod is ever added, and the calls stay away for good.

Where an autoscaler is declared, the load of a cluster's own users therefore stays up to a level.
Its pods can be added: up to SIGNAL times its target, which it must answer with a pod. No pod can be
added, or none came in time: up to its target, since less would make it remove pods. What exceeds
the level is the solver's to send away, and comes home with each pod. As far as the autoscaler can
tell, the load is then min(own load, level), which does not depend on weights as soon as all of it
fits. So the loop of both is the autoscaler's own, with steps of at most SIGNAL.

The calls that lead to an autoscaled service stay by the same share. Otherwise the load would leave
one hop earlier. A service on the way keeps no more than its own capacity allows.

New pods count in full for the level, because the autoscaler counts them, but hardly for latency
(capacities.py): what stays is at most MOST of the proven capacity.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from spillway.v1.topology_pb2 import Autoscaler

from spillway_optimizer.inputs.scale_outs import Place, ScaleOuts
from spillway_optimizer.model.capacities import Capacities
from spillway_optimizer.model.failures import Rates
from spillway_optimizer.problem.constraints import Shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey

# Factor on the target. Kubernetes does nothing up to 1.1, and noise of the rates takes a few
# percent.
SIGNAL = 1.2
# Utilisation of the proven capacity up to which an autoscaler's calls are kept at all.
MOST = 0.9
# Share above which calls stay as a whole, if all of them fit.
_ALL = 0.999
# Success rate below which nothing is kept: more pods do not help what fails for another reason.
_SOUND = 0.95


@dataclass(frozen=True)
class Room:
    """What stays of a service's calls in one cluster: `rps`, in requests of the baseline class.

    `grows`: more of them make the autoscaler add a pod, of which `pods` are live and `most` are
    allowed. `counted`: pods that the capacity is that of.
    """

    rps: float
    grows: bool
    pods: int
    most: int
    counted: float


@dataclass(frozen=True)
class Kept:
    """What must stay.

    `shares`: least shares of the calls that are made in a cluster, by (class, cluster). `expected`:
    where a pod should come. `pods`: those that count, of each place that has a room.
    """

    shares: Mapping[tuple[str, str], float]
    expected: frozenset[Place]
    notes: tuple[str, ...]
    pods: Mapping[Place, float]

    def within(self, problem: Problem) -> Problem:
        """Returns the problem with these shares."""
        if not self.shares:
            return problem
        return replace(problem, constraints=replace(problem.constraints, kept_local=self.shares))


NOTHING_KEPT = Kept({}, frozenset(), (), {})


def rooms(
    autoscalers: Mapping[Place, Autoscaler],
    capacities: Capacities,
    pods: Mapping[tuple[str, str], int],
    success: Rates,
    scale_outs: ScaleOuts,
    ceiling: float | None,
    now: float,
) -> Mapping[Place, Room]:
    """Returns the rooms of the places whose capacity and pods are known, and whose calls succeed.

    `pods`: live pods by (cluster, service). `ceiling`: highest utilisation that the operator
    allows; None: any.
    """
    most = min(MOST, 1.0 if ceiling is None else ceiling)
    failing = {(k.partition(" ")[0], cluster) for (k, cluster), rate in success.items() if rate < _SOUND}
    found = {}
    for place, autoscaler in autoscalers.items():
        live = pods.get((place[1], place[0]), 0)
        if place not in capacities.whole_rps or live <= 0 or place in failing:
            continue
        grows = live < autoscaler.max_pods and not scale_outs.gave_up(place, now)
        level = autoscaler.target_utilisation * (SIGNAL if grows else 1.0)
        proven, whole = capacities.capacity_rps[place], capacities.whole_rps[place]
        rps = min(level * whole, most * proven)
        found[place] = Room(rps, grows, live, autoscaler.max_pods, live * proven / whole)
    return found


Routing = Callable[[RuleKey], Shares]


@dataclass(frozen=True)
class _Calls:
    """Requests per second under a routing, by (class, cluster): calls made there, and load."""

    made: Mapping[tuple[str, str], float]
    load: Mapping[tuple[str, str], float]


def kept(problem: Problem, rooms: Mapping[Place, Room], present: Routing, nearest: Routing) -> Kept:
    """Returns what must stay.

    `present`: where the calls of a route go now. `nearest`: where they would go without rules, in
    their own cluster if they can.
    """
    if not rooms:
        return NOTHING_KEPT
    own, now = _calls(problem, nearest), _calls(problem, present)
    load = dict[Place, float]()
    for (class_id, cluster), rps in own.load.items():
        place = problem.classes[class_id], cluster
        load[place] = load.get(place, 0.0) + rps * problem.curves[class_id].norm_weight
    least = {}
    for key, share in _needs(problem, rooms, load).items():
        if (made := now.made.get(key, 0.0)) > 0 and (calls := own.made.get(key, 0.0)) > 0:
            wanted = share * calls / made
            least[key] = 1.0 if share >= 1.0 and wanted >= _ALL else min(wanted, _ALL)
    exceeded = {place for place, room in rooms.items() if room.rps < load.get(place, 0.0)}
    return Kept(
        {key: share for key, share in least.items() if share > 0},
        frozenset(place for place in exceeded if rooms[place].grows),
        tuple(_note(place, rooms[place], load[place]) for place in sorted(exceeded)),
        {place: room.counted for place, room in rooms.items()},
    )


def _note(place: Place, room: Room, load: float) -> str:
    pods = f"{room.pods} of at most {room.most} pods" + ("; one more is expected" if room.grows else "")
    return f"autoscalers: {room.rps / load:.0%} of {place[0]!r} stay in {place[1]!r}: {pods}"


def _needs(
    problem: Problem, rooms: Mapping[Place, Room], load: Mapping[Place, float]
) -> Mapping[tuple[str, str], float]:
    """Returns the share of the own calls of each (class, cluster) that must stay.

    `load`: that of each place if all calls stay, in requests of the baseline class.
    """
    needs = dict[tuple[str, str], float]()
    for class_id in reversed(problem.class_order):  # callees first
        called = [edge.target for edge in problem.edges if edge.source == class_id]
        for cluster in problem.clusters:
            place = problem.classes[class_id], cluster
            total = load.get(place, 0.0)
            if place not in problem.placement or total <= 0:
                continue
            own = min(1.0, rooms[place].rps / total) if place in rooms else 0.0
            further = max((needs.get((target, cluster), 0.0) for target in called), default=0.0)
            needs[class_id, cluster] = max(own, min(further, MOST * problem.capacity_rps[place] / total))
    return needs


def _calls(problem: Problem, routing: Routing) -> _Calls:
    """Returns the calls under a routing."""
    made, load = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for (cluster, class_id), rps in problem.demand_rps.items():
        load[class_id, cluster] = rps
    for source in problem.class_order:  # callers first
        edges = [edge for edge in problem.edges if edge.source == source]
        for cluster in problem.clusters if edges else ():
            for edge in edges if load.get((source, cluster), 0.0) > 0 else ():
                key, rps = (edge.target, cluster), load[source, cluster] * edge.calls_per_request
                made[key] = made.get(key, 0.0) + rps
                for to, share in routing(RuleKey(cluster, problem.classes[source], edge.target)).items():
                    load[edge.target, to] = load.get((edge.target, to), 0.0) + share * rps
    return _Calls(made, load)
