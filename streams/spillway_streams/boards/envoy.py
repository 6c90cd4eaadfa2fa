"""Requests of one Envoy by second of log time, from its cumulative counters. Pure.

Of the Envoy's own clock, only the order of its reports and the time between them are used. Even
these are not used where counters show that the clock was set back: within one life of the process,
counters only rise. Reports that were delayed and arrive together still count in the seconds in
which they were made.
"""

import math
from collections import defaultdict
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


@dataclass(eq=False)
class Envoy:
    """The state of one Envoy: its newest counters, and its requests by second of log time."""

    sent_ns: int  # time of the newest report of this life
    began_ns: int
    since: float  # log time since which its requests are known
    at: float  # log time that its newest report covers up to
    reported_at: float  # log time at which its newest report arrived
    delay_s: float  # log time minus the Envoy's own time, of the report with the least delay
    counts: Counts
    counters: Counters
    by_second: dict[int, dict[Series, float]] = field(default_factory=lambda: defaultdict(dict))
    past: dict[int, int] = field(default_factory=dict)  # begin of a past life -> its newest report
    doubt: _Doubt | None = None
    is_set_back: bool = False

    @classmethod
    def first(cls, report: Report, counts: Counts, taken: float, counters: Counters) -> "Envoy":
        """Returns the state after an Envoy's first report, which the broker took at `taken`."""
        is_new = 0 <= report.sent_ns - report.began_ns < _NEW_S * 1e9
        since = -math.inf if is_new else taken
        delay_s = taken - report.sent_ns / 1e9
        envoy = cls(report.sent_ns, report.began_ns, since, taken, taken, delay_s, counts, counters)
        if is_new:
            envoy._put(counts, taken - _NEW_S, taken)
        return envoy

    def take(self, report: Report, counts: Counts, taken: float) -> None:
        """Adds a further report, unless it is a repeat."""
        previous_ns = self.past.get(report.began_ns)
        # A restart never begins earlier, nor at a begin seen before. A report that claims so is
        # taken only if no newer report of this Envoy arrives meanwhile.
        is_newer = previous_ns is None and (report.began_ns, report.sent_ns) > (self.began_ns, self.sent_ns)
        is_repeat = previous_ns is not None and report.sent_ns <= previous_ns
        if is_repeat or not (is_newer or self._goes_on(report, counts, taken)):
            self.counters.add("repeated_totals")
            return
        delay_s = taken - report.sent_ns / 1e9
        if is_newer:
            self.doubt = None
        elif not self.is_set_back:
            self.counters.add("clocks_set_back")
            self.delay_s = delay_s
        self.is_set_back = not is_newer
        self.delay_s = min(self.delay_s + _DRIFT * (taken - self.reported_at), delay_s)
        self.reported_at = taken
        self._next(report, counts, report.sent_ns / 1e9 + self.delay_s)

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

    def _next(self, report: Report, counts: Counts, at: float) -> None:
        """Adds the counts of a new report. `at`: log time that the report covers up to."""
        is_reset = report.began_ns != self.began_ns
        before = {} if is_reset else self.counts
        if is_reset:
            self.counters.add("totals_began_anew")
            self.past.pop(report.began_ns, None)
            self.past = dict([*self.past.items(), (self.began_ns, self.sent_ns)][-_PAST:])
        grown = {series: count - before.get(series, 0) for series, count in counts.items()}
        if report.began_ns < self.began_ns:  # it is unknown how much of the counts is new
            self.since, grown = at, {}
        elif any(count < 0 for count in grown.values()):
            self.counters.add("rejected_totals: a counter went back")
            self.since, grown = at, {}
        self._put(grown, min(self.at, at - 0.5), at)
        self.sent_ns = report.sent_ns if is_reset else max(self.sent_ns, report.sent_ns)
        self.began_ns, self.at, self.counts = report.began_ns, at, counts
        for second in [second for second in self.by_second if second < at - _MEMORY_S]:
            del self.by_second[second]

    def _put(self, grown: Counts, first: float, until: float) -> None:
        """Spreads counts evenly over the log time from `first` to `until`."""
        if any(count > _MOST_RPS * max(until - first, 1.0) for count in grown.values()):
            self.counters.add("rejected_totals: more requests than can be")
            self.since = until
            return
        for second in range(max(math.floor(first), math.floor(until) - _MEMORY_S), math.floor(until) + 1):
            part = (min(until, second + 1) - max(first, second)) / (until - first)
            if part > 0:
                sums = self.by_second[second]
                for series, count in grown.items():
                    sums[series] = sums.get(series, 0.0) + count * part

    def total(self, first: int, end: int) -> dict[Series, float]:
        """Returns the requests of the seconds first <= s < end."""
        found: dict[Series, float] = defaultdict(float)
        for second in range(first, end):
            for series, count in self.by_second.get(second, {}).items():
                found[series] += count
        return found
