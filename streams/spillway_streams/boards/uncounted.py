"""Services whose proxies have never sent counters: whether silence of them means idle. Pure.

In a cluster where other services send counters, such a service may lack our filter, or its filter's
exports may never have arrived. Nothing distinguishes the two. Its silence is therefore unknown for
HOLD_S, and means no requests after that. Once spans of it have arrived, spans decide.
"""

import logging
from collections.abc import Callable, Collection

from spillway_streams.boards.placement import Placement
from spillway_streams.process.counters import Counters

HOLD_S = 600.0
Place = tuple[str, str]  # cluster, service
log = logging.getLogger("spillway.uncounted")


class Uncounted:
    """The services that heartbeats name, over all partitions of this worker."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._counting: set[str] = set()  # clusters in which some service sends counters
        self._sent: set[Place] = set()  # has sent counters at some time since it has Envoys
        self._since: dict[Place, float] = {}  # placed, and has sent no counters -> since when
        self._by_spans: set[Place] = set()

    def take(
        self, placement: Placement, sending: Collection[Place], owns: Callable[[str], bool], now: float
    ) -> None:
        """Updates the state.

        `sending`: services that have counters; `owns`: whether a service is in this worker's
        partitions; `now`: Unix seconds. A service is forgotten only when a heartbeat leaves it out.
        """
        placed = set(placement.services())
        stays = {
            *placed,
            *(place for place in (*self._sent, *self._since) if not placement.has_heartbeat(place[0])),
        }
        self._sent = (self._sent & stays) | (placed & set(sending))
        self._since = {place: self._since.get(place, now) for place in stays - self._sent if owns(place[1])}
        self._by_spans &= self._since.keys()
        self._counting = {cluster for cluster, _ in (*sending, *self._sent)}
        for place in sorted(self._since.keys() - self._by_spans):
            if place[0] in self._counting and now - self._since[place] >= HOLD_S:
                self._by_spans.add(place)
                self._counters.add("services_without_counters_taken_for_idle")
                log.warning(
                    "%s in %s: neither counters nor spans for %.0f s; assumed to be idle",
                    *place[::-1],
                    HOLD_S,
                )

    def spans_arrived(self, places: Collection[Place]) -> None:
        """Notes that spans of these services have arrived."""
        self._by_spans |= self._since.keys() & set(places)

    def is_idle(self, place: Place) -> bool:
        """Whether the service has no requests when neither counters nor spans of it arrive."""
        return place not in self._sent and (place[0] not in self._counting or place in self._by_spans)
