"""Boards whose rates come from the proxies' own counters, where these are complete. Pure.

Counters show how many requests there were, spans how long they took. A service is unknown when some
of its connected Envoys send no counters and its spans are not complete either. Its entries then
keep their last values.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, UnknownEntry

from spillway_streams.boards.boards import Came, Times
from spillway_streams.boards.held import Unknown
from spillway_streams.boards.totals import Counted, TotalsTable
from spillway_streams.process.counters import Counters

E = TypeVar("E", LoadBoardEntry, DemandEntry)
Place = tuple[str, str]  # cluster, service
_WHOLE = 0.9  # share of the previous requests from which on spans of all Envoys must be arriving
_DEVIATIONS = 4.0  # standard deviations of the difference of two counts: chance stays below
_MORE_SPANS, _MORE_RPS = 1.25, 2.0  # more spans than counters by this: some Envoys send no totals
_NOTHING = Came(0.0, 0.0)


class CountedBoards(Generic[E]):
    """Replaces the rates of boards by counted ones, and keeps the last counted entries.

    `entries_only`: count only requests whose caller is not a service of the mesh.
    """

    def __init__(self, entries_only: bool, counters: Counters) -> None:
        self._entries_only, self._counters = entries_only, counters
        self._last: dict[Place, dict[str, E]] = {}
        self.known: dict[Place, float] = {}  # by counters -> up to when
        self.unknown: dict[Place, UnknownEntry] = {}
        self.changed: set[str] = set()  # clusters in which the load of a service has just changed

    def apply(
        self,
        boards: Mapping[str, Mapping[str, E]],
        totals: TotalsTable,
        spans: Mapping[Place, Came],
        now: float,
        connected: Callable[[str, str], int | None] = lambda *_: None,
    ) -> dict[str, dict[str, E]]:
        """Returns the boards to show.

        `boards`: cluster -> class -> entry, from spans; `spans`: what arrived of each service;
        `connected`: number of Envoys of a (cluster, service), None where it is unknown.
        """
        self.known, self.unknown, self.changed = {}, {}, set()
        of: dict[Place, dict[str, E]] = defaultdict(dict)
        for cluster, entries in boards.items():
            for class_id, entry in entries.items():
                of[cluster, class_id.partition(" ")[0]][class_id] = entry
        shown: dict[str, dict[str, E]] = {cluster: {} for cluster in boards}
        for place in {*of, *totals.services()}:
            counted, came = totals.counted(*place, now, connected(*place)), spans.get(place, _NOTHING)
            if counted and counted.missing and not _are_whole(came, counted, totals.seconds):
                self.unknown[place] = UnknownEntry(counted.at, counted.missing)
                found = self._last.get(place, of.get(place, {}))
            else:
                found = self._of(place, of.get(place, {}), counted, came)
            shown.setdefault(place[0], {}).update(found)
        self._last = {place: entries for place, entries in self._last.items() if place in totals}
        return shown

    def _of(self, place: Place, entries: dict[str, E], counted: Counted | None, came: Came) -> dict[str, E]:
        if counted is None or counted.missing:
            return entries
        # Spans are counted over an earlier time, and a load may have fallen since.
        if came.spans > _MORE_SPANS * counted.most + _MORE_RPS:
            self._counters.add("totals_of_some_envoys_only")
            return entries
        self.known[place] = counted.at
        if counted.has_changed:
            self.changed.add(place[0])
        means = self._last.get(place, {}) | entries
        rates = by_span_class(counted.by_class(self._entries_only), entries, means)
        if unseen := sum(rate > 0 for class_id, rate in rates.items() if class_id not in means):
            self._counters.add("counted_classes_without_spans", unseen)
        self._last[place] = {
            class_id: replace(means[class_id], at=counted.at, rps=rate)
            for class_id, rate in rates.items()
            if rate > 0 and class_id in means
        }
        return self._last[place]


def _are_whole(came: Came, counted: Counted, seconds: int) -> bool:
    """Whether spans of all Envoys arrive, although some Envoys send no counters.

    Two conditions must hold. The spans stand for nearly as many requests as before. They also stand
    for more requests than the Envoys that still send have counted, by more than chance explains.
    Chance is larger where one span stands for many requests.
    """
    requests, spans = came.requests * seconds, came.spans * seconds
    if not spans or came.requests < _WHOLE * counted.whole or counted.going == math.inf:
        return False
    going = counted.going * seconds
    return requests - going > _DEVIATIONS * math.sqrt(requests**2 / spans + going)


def statements(
    found: Unknown,
    board: CountedBoards[E],
    times: Times,
    seen: Collection[Place],
    present: Iterable[Place],
    is_idle: Callable[[Place], bool],
) -> Unknown:
    """Returns cluster -> service -> up to when it is known, and the reason if it is not known.

    `found`: what spans leave unknown (held.unknown); `times`: up to when spans of each cluster are
    known; `seen`: services that spans have shown; `present`: the services that need a statement;
    `is_idle`: whether a service without any telemetry has no requests (uncounted.py). The reason is
    '' for a known service.

    If a whole cluster is unknown, each of its services gets a statement, from the partition that
    has the service. Other partitions, and other workers, may know other services of that cluster by
    their counters.
    """
    left: Unknown = defaultdict(dict)
    for cluster, service in present:
        place, fields = (cluster, service), found.get(cluster, {})
        if place in board.known:
            entry = UnknownEntry(board.known[place], "")
        elif place in board.unknown:
            entry = board.unknown[place]
        elif unknown := fields.get(service) or fields.get(names.VALUE_WHOLE_CLUSTER):
            entry = unknown
        elif cluster in times and cluster not in found and (place in seen or is_idle(place)):
            entry = UnknownEntry(times[cluster], "")
        else:
            entry = UnknownEntry(0.0, "it sends neither counters nor spans")
        left[cluster][service] = entry
    return dict(left)


def by_span_class(
    rates: Mapping[str, float], entries: Mapping[str, E], means: Iterable[str]
) -> dict[str, float]:
    """Returns the rates by the classes that spans have.

    Class rules rename some classes after the proxy has counted them, and requests without a class
    get one here. Counts under a class that no span has are therefore distributed over the classes
    that no counter has, in proportion to their spans.
    """
    renamed = {class_id: entry.rps for class_id, entry in entries.items() if class_id not in rates}
    whole = sum(renamed.values())
    if not whole:
        return dict(rates)
    seen = set(means)
    found = {class_id: rate for class_id, rate in rates.items() if class_id in seen}
    rest = sum(rates.values()) - sum(found.values())
    return found | {class_id: rest * rps / whole for class_id, rps in renamed.items()}
