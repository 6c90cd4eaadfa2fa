"""What a caller's cluster sees of one destination, smoothed (L3, sections 3.1 and 4). Pure."""

from dataclasses import dataclass, replace
from typing import Self

from spillway_optimizer.callers.ewma import Ewma

# Polls without data move averages back only after this long without traffic (L3, section 4).
_SILENT_S = 10.0
# Initial values and half-lives are those of section 4. That of requests in flight, and how far a
# poll without data moves an average, are in the authors' code alone.
_LATENCY_S, _LATENCY_HALF_LIFE_S, _LATENCY_DRIFT_S = 5.0, 5.0, 0.1
_IN_FLIGHT, _IN_FLIGHT_HALF_LIFE_S, _IN_FLIGHT_DRIFT = 100.0, 5.0, 1.0
_SUCCESS, _SUCCESS_HALF_LIFE_S, _SUCCESS_DRIFT = 1.0, 10.0, 0.01
_RPS_HALF_LIFE_S = 10.0


@dataclass(frozen=True)
class Outcome:
    """Calls from one cluster to one destination over the last seconds, as the callers saw them."""

    rps: float
    success_rate: float  # share of calls that did not fail
    p50_ms: float | None  # of successful calls; None: none succeeded
    p99_ms: float | None
    in_flight: float
    reported: bool = False  # `in_flight` is what Envoys report; otherwise it follows from Little's law


RATE = Ewma(0.0, _RPS_HALF_LIFE_S)  # of requests per second, before its first sample
_LATENCY = Ewma(_LATENCY_S, _LATENCY_HALF_LIFE_S, _LATENCY_DRIFT_S)


@dataclass(frozen=True)
class Signals:
    """The averages of one destination; without arguments, those of one that was never measured."""

    p50_s: Ewma = _LATENCY
    p99_s: Ewma = _LATENCY
    peak_s: Ewma = replace(_LATENCY, peak=True)  # of p99 too
    in_flight: Ewma = Ewma(_IN_FLIGHT, _IN_FLIGHT_HALF_LIFE_S, _IN_FLIGHT_DRIFT)
    success_rate: Ewma = Ewma(_SUCCESS, _SUCCESS_HALF_LIFE_S, _SUCCESS_DRIFT)
    rps: Ewma = RATE
    silent_s: float = 0.0  # how long there has been no traffic
    reported: bool = False  # of the newest sample of `in_flight`

    def after(self, outcome: Outcome | None, seconds: float) -> Self:
        """Returns the averages after a poll, `seconds` after the one before; None: no calls."""
        if outcome is None or (outcome.rps <= 0 and outcome.in_flight <= 0):
            return self._without_data(seconds)
        in_flight = self.in_flight.after(outcome.in_flight, seconds)
        if outcome.rps <= 0:  # every call hangs: nothing is known of success and latency
            rps = self.rps.after(0.0, seconds)
            return replace(self, in_flight=in_flight, rps=rps, silent_s=0.0, reported=outcome.reported)
        now = replace(
            self,
            in_flight=in_flight,
            reported=outcome.reported,
            success_rate=self.success_rate.after(outcome.success_rate, seconds),
            rps=self.rps.after(outcome.rps, seconds),
            silent_s=0.0,
        )
        if outcome.p50_ms is None or outcome.p99_ms is None:
            return now
        return replace(
            now,
            p50_s=self.p50_s.after(outcome.p50_ms / 1000, seconds),
            p99_s=self.p99_s.after(outcome.p99_ms / 1000, seconds),
            peak_s=self.peak_s.after(outcome.p99_ms / 1000, seconds),
        )

    def _without_data(self, seconds: float) -> Self:
        silent_s, rps = self.silent_s + seconds, self.rps.after(0.0, seconds)
        if silent_s < _SILENT_S:
            return replace(self, rps=rps, silent_s=silent_s)
        return replace(
            self,
            p50_s=self.p50_s.without_data(seconds),
            p99_s=self.p99_s.without_data(seconds),
            peak_s=self.peak_s.without_data(seconds),
            in_flight=self.in_flight.without_data(seconds),
            success_rate=self.success_rate.without_data(seconds),
            rps=rps,
            silent_s=silent_s,
        )
