"""Boards whose rates are those of the proxies' own counters, where these are whole. Pure.

Counters say how many requests there were, spans how long they took. Where Envoys of a service that are connected send no
counters, and its spans are not whole either, its entries stay as they were: it is unknown.
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
_WHOLE = 0.9  # of the requests before: spans of all Envoys come
_DEVIATIONS = 4.0  # of the difference of two counts: chance does not reach it
_MORE_SPANS, _MORE_RPS = 1.25, 2.0  # than the counters: some Envoys send no totals
_NOTHING = Came(0.0, 0.0)


class CountedBoards(Generic[E]):
    """What the last board of counters was; `entries_only`: rates of requests that nobody among us made."""

    def __init__(self, entries_only: bool, counters: Counters) -> None:
        self._entries_only, self._counters = entries_only, counters
        self._last: dict[Place, dict[str, E]] = {}
        self.known: dict[Place, float] = {}  # by counters, up to when
        self.unknown: dict[Place, UnknownEntry] = {}

    def apply(
        self,
        boards: Mapping[str, Mapping[str, E]],
        totals: TotalsTable,
        spans: Mapping[Place, Came],
        now: float,
        connected: Callable[[str, str], int | None] = lambda *_: None,
    ) -> dict[str, dict[str, E]]:
        """boards: cluster -> class -> entry, from spans; spans: what came of each service; connected: Envoys of a
        (cluster, service), None where that is not known. Returns the boards to show."""
        self.known, self.unknown = {}, {}
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
        if came.spans > _MORE_SPANS * counted.total + _MORE_RPS:
            self._counters.add("totals_of_some_envoys_only")
            return entries
        self.known[place] = counted.at
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
    """Whether spans of all Envoys come, though some send no counters: nearly as many requests as before, and more than
    the Envoys that go on have counted by what no chance makes. A span that stands for many says little."""
    requests, spans = came.requests * seconds, came.spans * seconds
    if not spans or came.requests < _WHOLE * counted.total or counted.going == math.inf:
        return False
    going = counted.going * seconds
    return requests - going > _DEVIATIONS * math.sqrt(requests**2 / spans + going)


def statements(
    found: Unknown,
    board: CountedBoards,
    times: Times,
    seen: Collection[Place],
    present: Iterable[Place],
    is_idle: Callable[[Place], bool],
) -> Unknown:
    """What is known now of each of these services, and what is not: cluster -> service -> up to when, and why not, '' for
    what is known.

    found: what spans leave unknown (held.unknown); times: up to when spans are known of each cluster; seen: services that
    spans have shown; present: all that a statement is needed of; is_idle: whether one of which nothing comes
    has no requests (uncounted.py).

    A cluster that is unknown as a whole is said service by service, each by the partition that has it: other partitions,
    and other workers, may know other services of it by counters."""
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
            entry = UnknownEntry(0.0, "neither counters nor spans of it come")
        left[cluster][service] = entry
    return dict(left)


def by_span_class(
    rates: Mapping[str, float], entries: Mapping[str, E], means: Iterable[str]
) -> dict[str, float]:
    """Rates by the classes that spans have. Class rules rename some after the proxy has counted them, and requests
    without a class get one here: what is counted under a class that no span has belongs to the classes that no counter
    has, in proportion to their spans."""
    renamed = {class_id: entry.rps for class_id, entry in entries.items() if class_id not in rates}
    whole = sum(renamed.values())
    if not whole:
        return dict(rates)
    seen = set(means)
    found = {class_id: rate for class_id, rate in rates.items() if class_id in seen}
    rest = sum(rates.values()) - sum(found.values())
    return found | {class_id: rest * rps / whole for class_id, rps in renamed.items()}
