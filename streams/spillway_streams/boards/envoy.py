"""Requests of one Envoy by log time, from its cumulative counters. Pure.

Of the Envoy's own clock, only the order of its reports and the time between them are used. Even
these are not used where counters show that the clock was set back: within one life of the process,
counters only rise. What was counted between two reports belongs to the time between them, by the
Envoy's clock. The least delay of any report decides where that is in log time. Reports that were
delayed and arrive together are therefore never counted as requests of one moment.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spillway_streams.process.counters import Counters

_MEMORY_S = 15
_NEW_S = 5.0  # counters that began so recently began at zero
_MOST_RPS = 1e6  # of one Envoy and class: a higher rate is not a valid count
# Seconds of log time. If reports continue for so long without a newer one by their clock, the clock
# was set back.
_SET_BACK_S = 3.0
_PAST = 4  # previous lives that are remembered
_DRIFT = 1e-3  # seconds per second that an Envoy's clock may lose against the broker's
# Reports come once a second, and sooner when the load has changed. If the delay falls by more than
# this from one report to the next, either the reports before were delayed by an unknown time, or
# the clock was set forward.
_FALL_S = 1.5
_SHORTEST_S = 0.05  # counts are spread over at least so much time
_EARLY_S = 0.8  # a report so soon after the one before says that the load has changed

Series = tuple[str, bool]  # class id ('' for none), whether the caller is outside the mesh
Counts = dict[Series, int]


class Report(NamedTuple):
    """The counters of one Envoy at one time."""

    cluster: str
    service: str
    instance: str
    sent_ns: int
    began_ns: int
    counts: Counts


class _Doubt(NamedTuple):
    """Reports that are not newer by their clock.

    `began_ns`: start of their life; `sent_ns`: time of the newest; `since`: log time of the first.
    """

    began_ns: int
    sent_ns: int
    since: float


class _Stretch(NamedTuple):
    """Requests that were counted in first < t <= end, in seconds of the Envoy's own clock."""

    first: float
    end: float
    counts: Counts


@dataclass(eq=False)
class Envoy:
    """The state of one Envoy: its newest counters, and the requests of the last seconds.

    Times are seconds of the Envoy's own clock unless said otherwise.
    """

    sent_ns: int  # time of the newest report of this life
    began_ns: int
    known_from: float  # time since which its requests are known
    end: float  # time that its newest report covers up to
    reported_at: float  # log time at which its newest report arrived
    delay_s: float  # log time minus the Envoy's own time, of the report with the least delay
    counts: Counts
    counters: Counters
    stretches: list[_Stretch] = field(default_factory=list)
    past: dict[int, int] = field(default_factory=dict)  # begin of a past life -> its newest report
    doubt: _Doubt | None = None
    is_set_back: bool = False

    @property
    def since(self) -> float:
        """Log time since which its requests are known."""
        return self.known_from + self.delay_s

    @property
    def at(self) -> float:
        """Log time that its newest report covers up to."""
        return self.end + self.delay_s

    @classmethod
    def first(cls, report: Report, counts: Counts, taken: float, counters: Counters) -> "Envoy":
        """Returns the state after an Envoy's first report, which the broker took at `taken`."""
        is_new, end = 0 <= report.sent_ns - report.began_ns < _NEW_S * 1e9, report.sent_ns / 1e9
        known_from = -math.inf if is_new else end
        envoy = cls(
            report.sent_ns, report.began_ns, known_from, end, taken, taken - end, counts, counters
        )  # fmt: skip
        if is_new:
            envoy._put(counts, end - _NEW_S, end)
        return envoy

    def take(self, report: Report, counts: Counts, taken: float) -> bool:
        """Adds a further report, unless it is a repeat. Returns whether it came early.

        An Envoy reports early when its load has changed.
        """
        previous_ns = self.past.get(report.began_ns)
        # A restart never begins earlier, nor at a begin seen before. A report that claims so is
        # taken only if no newer report of this Envoy arrives meanwhile.
        is_newer = previous_ns is None and (report.began_ns, report.sent_ns) > (self.began_ns, self.sent_ns)
        is_repeat = previous_ns is not None and report.sent_ns <= previous_ns
        if is_repeat or not (is_newer or self._goes_on(report, counts, taken)):
            self.counters.add("repeated_totals")
            return False
        if is_newer:
            self.doubt = None
        elif not self.is_set_back:
            self.counters.add("clocks_set_back")
        end = report.sent_ns / 1e9
        if self.is_set_back == is_newer:
            self._set_clock(taken - end)
        self.is_set_back = not is_newer
        delay_s = self.delay_s + _DRIFT * (taken - self.reported_at)
        is_late_no_more = taken - end < delay_s - _FALL_S
        self.delay_s = min(delay_s, taken - end)
        self.reported_at = taken
        is_early = 0 < end - self.end < _EARLY_S
        self._next(report, counts, end, is_late_no_more)
        return is_early

    def _set_clock(self, delay_s: float) -> None:
        """Goes over to another clock, which is `delay_s` behind log time.

        What is known stays where it is in log time.
        """
        ahead_s = self.delay_s - delay_s
        self.delay_s, self.end, self.known_from = delay_s, self.end + ahead_s, self.known_from + ahead_s
        self.stretches = [
            _Stretch(stretch.first + ahead_s, stretch.end + ahead_s, stretch.counts)
            for stretch in self.stretches
        ]

    def _goes_on(self, report: Report, counts: Counts, taken: float) -> bool:
        """Whether a report is new although it is not newer by its clock.

        A report of the current life is new if its counters have grown, or if they stand still and
        reports continue. A report of another life is new if reports of that life continue.
        """
        if report.began_ns == self.began_ns:
            if any(counts.get(series, 0) < count for series, count in self.counts.items()):
                return False
            if counts != self.counts:
                return True
        doubt = self.doubt
        if not doubt or doubt.began_ns != report.began_ns or doubt.sent_ns >= report.sent_ns:
            self.doubt = _Doubt(report.began_ns, report.sent_ns, taken)
            return False
        self.doubt = doubt._replace(sent_ns=report.sent_ns)
        return taken - doubt.since >= _SET_BACK_S

    def _next(self, report: Report, counts: Counts, end: float, is_late_no_more: bool) -> None:
        """Adds the counts of a new report, which covers up to `end`.

        `is_late_no_more`: when the counts before were made is not known.
        """
        is_reset = report.began_ns != self.began_ns
        before = {} if is_reset else self.counts
        if is_reset:
            self.counters.add("totals_began_anew")
            self.past.pop(report.began_ns, None)
            self.past = dict([*self.past.items(), (self.began_ns, self.sent_ns)][-_PAST:])
        grown = {series: count - before.get(series, 0) for series, count in counts.items()}
        if any(count < 0 for count in grown.values()):
            self.counters.add("rejected_totals: a counter went back")
            self._forget(end)
        elif report.began_ns < self.began_ns:  # it is unknown how much of the counts is new
            self._forget(end)
        elif is_late_no_more:
            self.counters.add("totals_of_an_unknown_time")
            self._forget(end)
        else:
            self._put(grown, min(self.end, end - _SHORTEST_S), end)
        self.sent_ns = report.sent_ns if is_reset else max(self.sent_ns, report.sent_ns)
        self.began_ns, self.end, self.counts = report.began_ns, end, counts

    def _forget(self, end: float) -> None:
        """Begins anew: requests are known from `end` on."""
        self.known_from, self.stretches = end, []

    def _put(self, grown: Counts, first: float, end: float) -> None:
        """Adds requests that were counted in first < t <= end."""
        if any(count > _MOST_RPS * max(end - first, 1.0) for count in grown.values()):
            self.counters.add("rejected_totals: more requests than can be")
            self._forget(end)
            return
        self.stretches = [stretch for stretch in self.stretches if stretch.end >= end - _MEMORY_S]
        self.stretches.append(_Stretch(first, end, grown))

    def recent(self, seconds: float) -> Iterator[tuple[float, float, Counts]]:
        """Yields what was counted in the seconds before its newest report.

        Yields (youngest, oldest, counts). Ages are in seconds before the newest report, by the
        Envoy's own clock.
        """
        for stretch in self.stretches:
            if stretch.end > self.end - seconds:
                yield self.end - stretch.end, self.end - stretch.first, stretch.counts
