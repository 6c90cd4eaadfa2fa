"""What is not known of the mesh now, and since when. Pure.

Unknown is neither zero nor gone. The demand and the capacity of what is unknown stay as they were
known last, and no weight towards it changes. Only received telemetry shows that something is zero,
or gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry

from spillway_optimizer.inputs.telemetry import Telemetry

# Clocks of nodes differ by fewer seconds than this, or something is wrong with them.
CLOCK_AHEAD_S = 10.0
# For how many seconds it is remembered that the Envoys of a service have left, or that it had
# calls, and for how many (service, cluster) pairs.
REMEMBERED_S, REMEMBERED = 86_400.0, 10_000
Pair = tuple[str, str]
E = TypeVar("E", LoadBoardEntry, DemandEntry)


@dataclass(frozen=True)
class Unknown:
    """Why something is unknown: reasons by cluster, and by (service, cluster)."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[Pair, str] = field(default_factory=dict)

    def why(self, service: str, cluster: str) -> str | None:
        """Returns why the service is unknown in the cluster; None: it is known."""
        return self.clusters.get(cluster) or self.services.get((service, cluster))

    def notes(self) -> tuple[str, ...]:
        """Returns one sentence for each cluster and each service that is unknown."""
        held = "its demand, its capacities and the weights towards it are held"
        return (
            *(f"unknown: {cluster!r}: {why}; {held}" for cluster, why in sorted(self.clusters.items())),
            *(f"unknown: {s!r} in {c!r}: {why}; {held}" for (s, c), why in sorted(self.services.items())),
        )


NOTHING = Unknown()


def unknowns(telemetry: Telemetry, clusters: Iterable[str], now: float, max_age_s: float) -> Unknown:
    """Returns what is unknown.

    The sources are the reports of streams, the age of the boards, and the heartbeats.
    """
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
            *_unreported(telemetry, cluster, now, max_age_s),
        ):
            services.setdefault((name, cluster), why)
        reasons = [*_boards(telemetry, cluster, now, max_age_s), *_heartbeat(telemetry, cluster)]
        if reasons and cluster not in found:
            found[cluster] = reasons[0]
    return Unknown(found, services)


def _boards(telemetry: Telemetry, cluster: str, now: float, max_age_s: float) -> Iterable[str]:
    """Yields why the boards of a cluster cannot be used: too old, or ahead of this clock."""
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
    """Yields services whose entries are older than others of the same board, and why.

    The worker that writes such entries is away. An entry is not old for lack of requests, because a
    worker removes the entry of a class without requests.
    """
    for name, boards in (("demand", telemetry.demand), ("load", telemetry.load)):
        board = boards.get(cluster, {})
        newest = max((entry.at for entry in board.values()), default=0.0)
        for class_id, entry in sorted(board.items()):
            if newest - entry.at > max_age_s:
                behind = f"{newest - entry.at:.0f} s older than the newest of its board"
                yield class_id.partition(" ")[0], f"{name}: the entry of {class_id!r} is {behind}"


def _unreported(
    telemetry: Telemetry, cluster: str, now: float, max_age_s: float
) -> Iterable[tuple[str, str]]:
    """Yields services that have Envoys but no demand that is known now, and why.

    An absent entry means zero only if streams report that the service is known. The job that writes
    demand reports it for every service that has Envoys. Another job writes the load board, which
    says nothing about demand. Streams of release 0.1.0, and models from files, never report it;
    with them an absent entry means zero.
    """
    if not _state(telemetry):
        return
    reported = telemetry.unknown.get(cluster, {})
    shown = {class_id.partition(" ")[0] for class_id in telemetry.demand.get(cluster, {})}
    for service in sorted(telemetry.placement.get(cluster) or ()):
        entry = reported.get(service)
        if entry is not None and now - entry.at > max_age_s:
            yield service, f"known until {now - entry.at:.0f} s ago; at most {max_age_s:g} s is allowed"
        elif entry is None and service not in shown:
            yield service, "it has Envoys, and neither the demand board nor streams say how many requests"


def _state(telemetry: Telemetry) -> bool:
    """Returns whether streams report what is known, now or before.

    An entry with a reason reports only that something is unknown.
    """
    reported = (entry for entries in telemetry.unknown.values() for entry in entries.values())
    return telemetry.streams_state or any(not entry.reason for entry in reported)


def _heartbeat(telemetry: Telemetry, cluster: str) -> Iterable[str]:
    if telemetry.placement and telemetry.placement.get(cluster) is None:
        yield f"placement: no heartbeat from {cluster!r}"


def gained(
    unknown: Unknown, class_id: str, before: Mapping[str, int], after: Mapping[str, int]
) -> str | None:
    """Returns why the weights of a class may not change from `before` to `after`; None: they may.

    They may not if a cluster that would get more is unknown.
    """
    for cluster in sorted(after):
        why = unknown.why(class_id.partition(" ")[0], cluster)
        if why is not None and after[cluster] > before.get(cluster, 0):
            return f"{class_id!r} in {cluster!r} is unknown: {why}; no weight towards it rises"
    return None


def of(unknown: Unknown, key: Pair) -> bool:
    """Returns whether the demand of `key` (cluster, class) is unknown."""
    return unknown.why(key[1].partition(" ")[0], key[0]) is not None


@dataclass(frozen=True)
class LastKnown:
    """What was known last of boards and placements, and when services left or had calls.

    `streams_state` says whether streams have ever reported what they know.
    """

    load: Mapping[str, Mapping[str, LoadBoardEntry]] = field(default_factory=dict)
    demand: Mapping[str, Mapping[str, DemandEntry]] = field(default_factory=dict)
    placement: Mapping[str, frozenset[str]] = field(default_factory=dict)
    streams_state: bool = False
    left: Mapping[Pair, float] = field(default_factory=dict)  # see Telemetry
    served: Mapping[Pair, float] = field(default_factory=dict)

    def after(self, telemetry: Telemetry, now: float) -> "LastKnown":
        """Returns what is known last after one more reading."""
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
        """Returns when services left. A service that heartbeats list again has not left."""
        gone = {
            (service, cluster): now
            for cluster, services in placed.items()
            for service in self.placement.get(cluster, frozenset()) - services
        }
        # Times after `now` are cut to it: the clock may have been set back.
        before = {pair: min(at, now) for pair, at in self.left.items()}
        left = _remembered({**gone, **before}, now)
        return {(s, c): at for (s, c), at in left.items() if s not in placed.get(c, ())}

    def completed(self, telemetry: Telemetry) -> Telemetry:
        """Returns the telemetry with what was known last.

        The boards of load or demand are replaced only where the boards of that kind are empty in
        all clusters. If a single board is empty, streams report whether its cluster just has no
        requests.
        """
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
    """Returns the REMEMBERED newest times. Times that are too old or lie ahead are dropped."""
    kept = {pair: at for pair, at in times.items() if -CLOCK_AHEAD_S <= now - at < REMEMBERED_S}
    newest = sorted(kept, key=kept.__getitem__)[-REMEMBERED:]
    return {pair: kept[pair] for pair in newest}


def _present(boards: Mapping[str, Mapping[str, E]]) -> dict[str, Mapping[str, E]]:
    return {cluster: board for cluster, board in boards.items() if board}
