"""The boards of one partition of the arrivals: last known values, and what is unknown now. Pure.

A cluster's entries are computed again whenever its time has advanced. Until then they stay
unchanged, and their `at` is the time that they belong to. What is unknown is stated as long as the
cluster is remembered.
"""

import math
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, UnknownEntry

from spillway_streams.boards.boards import Came, HotTable, Times

E = TypeVar("E", LoadBoardEntry, DemandEntry)
Unknown = dict[str, dict[str, UnknownEntry]]


class Held(Generic[E]):
    """The time of each cluster, and its entries at that time."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, E]] = {}
        self.times: dict[str, float] = {}
        self.came: dict[tuple[str, str], Came] = {}  # HotTable.came
        self._moved: dict[str, float] = {}

    def services(self) -> set[tuple[str, str]]:
        """Returns each (cluster, service) that was called, as far as the cluster is known."""
        shown = {
            (c, class_id.partition(" ")[0]) for c, entries in self.entries.items() for class_id in entries
        }
        return shown | self.came.keys()

    def update(
        self,
        hot: HotTable,
        make: Callable[[Times], Mapping[str, dict[str, E]]],
        now: float,
        hold_s: float,
        is_placed: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Computes the entries that are due (`make`), and forgets silent clusters.

        A cluster is silent when its time has not advanced for `hold_s`; it is kept while it still
        has Envoys (`is_placed`). `now`: Unix seconds.
        """
        due = {cluster: at for cluster, at in hot.due().items() if at != self.times.get(cluster)}
        if due:
            made = make(due)
            self.entries |= {cluster: made.get(cluster, {}) for cluster in due}
            self.times |= due
            kept = {
                place: n for place, n in self.came.items() if place[0] in self.times and place[0] not in due
            }
            self.came = kept | hot.came(due)
        self._moved = {
            cluster: self._moved.get(cluster, now) for cluster in hot.times.clusters()
        } | dict.fromkeys(due, now)
        silent = [cluster for cluster, moved in self._moved.items() if moved < now - hold_s]
        for cluster in [cluster for cluster in silent if not is_placed(cluster)]:
            for known in (self.times, self.entries, self._moved):
                known.pop(cluster, None)
            self.came = {place: found for place, found in self.came.items() if place[0] != cluster}
            hot.times.forget(cluster)


def unknown(held: Held[E], hot: HotTable, now: float, after_s: float) -> Unknown:
    """Returns what has been unknown for more than `after_s` seconds.

    The result is cluster -> service, or the whole cluster -> since when, and why.
    """
    reached, sources = hot.times.behind()
    found: Unknown = {}
    for cluster in {*hot.times.clusters(), *held.times}:
        at = hot.times.at(cluster)
        since = held.times.get(cluster, at)
        if since is None or now - since <= after_s:
            continue
        if now - reached > after_s:
            reason = f"{_partitions(sources)}: not read for {_seconds(now - reached)}"
        elif at is None or now - at > after_s:
            found[cluster] = {
                names.VALUE_WHOLE_CLUSTER: UnknownEntry(since, _silence(hot, cluster, now, since, after_s))
            }
            continue
        else:
            reason = f"{_partitions(hot.times.complete_from()[1])}: some messages were not counted"
        services = sorted(service for place, service in held.services() if place == cluster)
        found[cluster] = dict.fromkeys(services, UnknownEntry(since, reason))
    return found


def _silence(hot: HotTable, cluster: str, now: float, since: float, after_s: float) -> str:
    silent_s = now - hot.times.newest_arrival(cluster)
    if silent_s > after_s:
        return f"no spans of the cluster for {_seconds(silent_s)}"
    return f"spans of the cluster arrive {_seconds(now - since)} late"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < math.inf else "any time"


def _partitions(sources: list[int]) -> str:
    return f"{names.KAFKA_TOPIC_OTLP_SPANS} {', '.join(map(str, sources[:5]))}{', ...' if len(sources) > 5 else ''}"
