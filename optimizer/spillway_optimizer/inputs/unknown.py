"""What is not known of the mesh now, and since when it has been like this. Pure.

Unknown is neither zero nor gone: the demand and the capacity of what is unknown are those known last, and no weight
towards it changes. Only what is heard says that something is zero, or gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spillway_contracts import names

from spillway_optimizer.inputs.telemetry import Telemetry

# Clocks of nodes differ by less than this, or something is wrong with them.
CLOCK_AHEAD_S = 10.0
# For how long it is remembered that Envoys of a service have left, and that a service had calls, and of how many.
REMEMBERED_S, REMEMBERED = 86_400.0, 10_000
Pair = tuple[str, str]


@dataclass(frozen=True)
class Unknown:
    """Reasons by cluster, and by (service, cluster)."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[Pair, str] = field(default_factory=dict)

    def why(self, service: str, cluster: str) -> str | None:
        """None: it is known."""
        return self.clusters.get(cluster) or self.services.get((service, cluster))

    def notes(self) -> tuple[str, ...]:
        held = "its demand, its capacities and the weights towards it are held"
        return (
            *(f"unknown: {cluster!r}: {why}; {held}" for cluster, why in sorted(self.clusters.items())),
            *(f"unknown: {s!r} in {c!r}: {why}; {held}" for (s, c), why in sorted(self.services.items())),
        )


NOTHING = Unknown()


def unknowns(telemetry: Telemetry, clusters: Iterable[str], now: float, max_age_s: float) -> Unknown:
    """By what streams say of it, by the age of the boards, and by the heartbeat."""
    found: dict[str, str] = {}
    services: dict[Pair, str] = {}
    for cluster in clusters:
        for name, entry in sorted(telemetry.unknown.get(cluster, {}).items()):
            if not entry.reason:
                continue
            why = entry.reason
            if entry.at:
                why += f", known until {max(now - entry.at, 0.0):.0f} s ago"
            if name == names.VALUE_WHOLE_CLUSTER:
                found[cluster] = why
            else:
                services[name, cluster] = why
        for name, why in (
            *_behind(telemetry, cluster, max_age_s),
            *_unsaid(telemetry, cluster, now, max_age_s),
        ):
            services.setdefault((name, cluster), why)
        reasons = [*_boards(telemetry, cluster, now, max_age_s), *_heartbeat(telemetry, cluster)]
        if reasons and cluster not in found:
            found[cluster] = reasons[0]
    return Unknown(found, services)


def _boards(telemetry: Telemetry, cluster: str, now: float, max_age_s: float) -> Iterable[str]:
    for name, boards in (("demand", telemetry.demand), ("load", telemetry.load)):
        newest = max((entry.at for entry in boards.get(cluster, {}).values()), default=None)
        if newest is None:
            continue
        if now - newest > max_age_s:
            yield f"{name}: board of {cluster!r} is {now - newest:.0f} s old; at most {max_age_s:g} s is allowed"
        elif newest - now > CLOCK_AHEAD_S:
            ahead = f"{newest - now:.0f} s ahead of this clock; at most {CLOCK_AHEAD_S:g} s is allowed"
            yield f"{name}: board of {cluster!r} is {ahead}"


def _behind(telemetry: Telemetry, cluster: str, max_age_s: float) -> Iterable[tuple[str, str]]:
    """Services whose entries are older than others of the same board, and why: the worker that writes them is away. Of a
    class without requests a worker removes the entry."""
    for name, boards in (("demand", telemetry.demand), ("load", telemetry.load)):
        board = boards.get(cluster, {})
        newest = max((entry.at for entry in board.values()), default=0.0)
        for class_id, entry in sorted(board.items()):
            if newest - entry.at > max_age_s:
                behind = f"{newest - entry.at:.0f} s older than the newest of its board"
                yield class_id.partition(" ")[0], f"{name}: the entry of {class_id!r} is {behind}"


def _unsaid(telemetry: Telemetry, cluster: str, now: float, max_age_s: float) -> Iterable[tuple[str, str]]:
    """Services that have Envoys and no demand that is known now, and why: an absent entry is zero only if streams say that
    the service is known. The job that writes demand says so of every service that has Envoys; the load board is
    another's, and no word about demand. Streams of 0.1.0, and models from files, say so of none, and mean zero."""
    if not _state(telemetry):
        return
    said = telemetry.unknown.get(cluster, {})
    shown = {class_id.partition(" ")[0] for class_id in telemetry.demand.get(cluster, {})}
    for service in sorted(telemetry.placement.get(cluster) or ()):
        entry = said.get(service)
        if entry is not None and now - entry.at > max_age_s:
            yield service, f"known until {now - entry.at:.0f} s ago; at most {max_age_s:g} s is allowed"
        elif entry is None and service not in shown:
            yield service, "it has Envoys, and neither the demand board nor streams say how many requests"


def _state(telemetry: Telemetry) -> bool:
    """Whether streams say what is known: they have before, or do now. A reason says only that something is unknown."""
    said = (entry for entries in telemetry.unknown.values() for entry in entries.values())
    return telemetry.streams_state or any(not entry.reason for entry in said)


def _heartbeat(telemetry: Telemetry, cluster: str) -> Iterable[str]:
    if telemetry.placement and telemetry.placement.get(cluster) is None:
        yield f"placement: no heartbeat from {cluster!r}"


def gained(
    unknown: Unknown, class_id: str, before: Mapping[str, int], after: Mapping[str, int]
) -> str | None:
    """Why no weight of the class may change like this: a cluster that would get more is unknown. None: it may."""
    for cluster in sorted(after):
        why = unknown.why(class_id.partition(" ")[0], cluster)
        if why is not None and after[cluster] > before.get(cluster, 0):
            return f"{class_id!r} in {cluster!r} is unknown: {why}; no weight towards it rises"
    return None


def of(unknown: Unknown, key: Pair) -> bool:
    """Whether the demand of (cluster, class) is unknown."""
    return unknown.why(key[1].partition(" ")[0], key[0]) is not None


@dataclass(frozen=True)
class LastKnown:
    """Boards and placements as they were last there, what has left, what had calls, and whether streams have ever stated
    what they know."""

    load: Mapping = field(default_factory=dict)
    demand: Mapping = field(default_factory=dict)
    placement: Mapping[str, frozenset[str]] = field(default_factory=dict)
    streams_state: bool = False
    left: Mapping[Pair, float] = field(default_factory=dict)  # see Telemetry
    served: Mapping[Pair, float] = field(default_factory=dict)

    def after(self, telemetry: Telemetry, now: float) -> "LastKnown":
        placed = {c: services for c, services in telemetry.placement.items() if services is not None}
        return LastKnown(
            {**self.load, **_present(telemetry.load)},
            {**self.demand, **_present(telemetry.demand)},
            {**self.placement, **placed},
            self.streams_state or _state(telemetry),
            self._left(placed, now),
            _remembered({**self.served, **_calls(telemetry)}, now),
        )

    def _left(self, placed: Mapping[str, frozenset[str]], now: float) -> Mapping[Pair, float]:
        """A service that heartbeats list again has not left."""
        gone = {
            (service, cluster): now
            for cluster, services in placed.items()
            for service in self.placement.get(cluster, frozenset()) - services
        }
        before = {pair: min(at, now) for pair, at in self.left.items()}  # a clock that was set back
        left = _remembered({**gone, **before}, now)
        return {(s, c): at for (s, c), at in left.items() if s not in placed.get(c, ())}

    def completed(self, telemetry: Telemetry) -> Telemetry:
        """With the boards of before where all of a kind are empty. Whether one alone that is empty is of a cluster without
        requests, streams say."""
        load, demand = telemetry.load, telemetry.demand
        return replace(
            telemetry,
            load=load if _present(load) else self.load,
            demand=demand if _present(demand) else self.demand,
            placed_last=self.placement,
            streams_state=self.streams_state,
            left=self.left,
            served=self.served,
        )


def _calls(telemetry: Telemetry) -> dict[Pair, float]:
    return {
        (service, cluster): at
        for cluster, services in telemetry.calls_at().items()
        for service, at in services.items()
    }


def _remembered(times: Mapping[Pair, float], now: float) -> Mapping[Pair, float]:
    """The newest REMEMBERED; times that lie ahead are no times."""
    kept = {pair: at for pair, at in times.items() if -CLOCK_AHEAD_S <= now - at < REMEMBERED_S}
    newest = sorted(kept, key=kept.__getitem__)[-REMEMBERED:]
    return {pair: kept[pair] for pair in newest}


def _present(boards: Mapping) -> Mapping:
    return {cluster: board for cluster, board in boards.items() if board}
