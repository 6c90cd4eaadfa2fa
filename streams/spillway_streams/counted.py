"""Boards whose rates are those of the proxies' own counters, where these are whole. Pure.

Counters say how many requests there were, spans how long they took. Where some of a service's Envoys no longer say
anything, and its spans have become fewer too, its entries stay as they were: it is unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, UnknownEntry

from spillway_streams.counters import Counters
from spillway_streams.held import Unknown
from spillway_streams.totals import Counted, TotalsTable

E = TypeVar("E", LoadBoardEntry, DemandEntry)
Place = tuple[str, str]  # cluster, service
_WHOLE = 0.9  # of the requests before: spans of all Envoys come
_MORE_SPANS, _MORE_RPS = 1.25, 2.0  # than the counters: some Envoys send no totals


class CountedBoards(Generic[E]):
    """What the last board of counters was; `entries_only`: rates of requests that nobody among us made."""

    def __init__(self, entries_only: bool, counters: Counters) -> None:
        self._entries_only, self._counters = entries_only, counters
        self._last: dict[Place, dict[str, E]] = {}
        self.known: set[Place] = set()  # by counters
        self.unknown: dict[Place, UnknownEntry] = {}

    def apply(
        self,
        boards: Mapping[str, Mapping[str, E]],
        totals: TotalsTable,
        spans: Mapping[Place, float],
        now: float,
    ) -> dict[str, dict[str, E]]:
        """boards: cluster -> class -> entry, from spans; spans: how many of each service came per second, whatever
        they claim to stand for. Returns the boards to show."""
        self.known, self.unknown = set(), {}
        of: dict[Place, dict[str, E]] = defaultdict(dict)
        for cluster, entries in boards.items():
            for class_id, entry in entries.items():
                of[cluster, class_id.partition(" ")[0]][class_id] = entry
        shown: dict[str, dict[str, E]] = {cluster: {} for cluster in boards}
        for place in {*of, *totals.services()}:
            counted = totals.counted(*place, now)
            shown.setdefault(place[0], {}).update(
                self._of(place, of.get(place, {}), counted, spans.get(place, 0.0))
            )
        self._last = {place: entries for place, entries in self._last.items() if place in totals}
        return shown

    def _of(self, place: Place, entries: dict[str, E], counted: Counted | None, spans: float) -> dict[str, E]:
        if counted is None:
            return entries
        if counted.missing:
            rates = counted.by_class(self._entries_only)
            if sum(entry.rps for entry in entries.values()) >= _WHOLE * sum(rates.values()):
                return entries
            self.unknown[place] = UnknownEntry(counted.at, counted.missing)
            return self._last.get(place, entries)
        if spans > _MORE_SPANS * counted.total + _MORE_RPS:
            self._counters.add("totals_of_some_envoys_only")
            return entries
        self.known.add(place)
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


def still_unknown(found: Unknown, board: CountedBoards, present: Iterable[Place]) -> Unknown:
    """What spans leave unknown (held.unknown), less what counters know, and with what they do not. present: services of
    this partition. A cluster that is unknown as a whole is said service by service, each by the partition that has it:
    other partitions, and other workers, may know other services of it by counters."""
    of: dict[str, set[str]] = defaultdict(set)
    for cluster, service in present:
        of[cluster].add(service)
    left: Unknown = {}
    for cluster, fields in found.items():
        known = {service for place, service in board.known if place == cluster}
        if whole := fields.get(names.VALUE_WHOLE_CLUSTER):
            fields = dict.fromkeys(of[cluster], whole)
        left[cluster] = {service: entry for service, entry in fields.items() if service not in known}
    for (cluster, service), entry in board.unknown.items():
        left.setdefault(cluster, {}).setdefault(service, entry)
    return left


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
