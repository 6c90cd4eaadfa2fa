"""Load over time: constant rates, ramps and bursts, in requests per second by cluster.

A phase is piecewise linear. `segments` gives the pieces, which the live load generator and the
simulator both follow. Times are in seconds of scenario time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from spillway_lab.scenario.application import Model, Positive
from spillway_lab.scenario.places import NotNegative

CLIENT_TIMEOUT_S = 10.0  # how long a client waits for an answer, in scenario time

Rates = dict[str, NotNegative]  # requests per second by cluster; a cluster that is left out has 0
# Pieces of one phase. More would be a burst in every few milliseconds.
_MOST_PIECES = 10_000


class Step(Model):
    """Load of the profile, from which the curves are learned."""

    seconds: Positive
    rps: Rates


class Burst(Model):
    """From a phase's start, every `every_seconds`: `seconds` with `factor` times the rates."""

    every_seconds: Positive
    seconds: Positive
    factor: NotNegative

    @model_validator(mode="after")
    def _shorter_than_its_period(self) -> "Burst":
        if self.seconds >= self.every_seconds:
            raise ValueError(
                f"seconds: {self.seconds:g}; allowed: less than every_seconds, which is {self.every_seconds:g}"
            )
        return self


class Phase(Model):
    """Rates for a time: constant, or changing linearly from `rps` to `to_rps`."""

    seconds: Positive
    rps: Rates
    to_rps: Rates | None = None
    burst: Burst | None = None

    @model_validator(mode="after")
    def _few_bursts(self) -> "Phase":
        if self.burst and self.seconds / self.burst.every_seconds > _MOST_PIECES:
            least = self.seconds / _MOST_PIECES
            raise ValueError(
                f"burst.every_seconds: {self.burst.every_seconds:g}; allowed: at least {least:g}"
            )
        return self

    def rate(self, cluster: str, at_s: float) -> float:
        """Returns the rate of a cluster `at_s` seconds after the phase's start, without bursts."""
        start = self.rps.get(cluster, 0.0)
        end = start if self.to_rps is None else self.to_rps.get(cluster, 0.0)
        share = min(at_s / self.seconds, 1.0)
        return start * (1 - share) + end * share  # in this form, rounding makes no rate negative


class Measure(Model):
    """The load under which policies are compared. It is constant, or has phases.

    `settled_seconds`: control loops that act on a change at the beginning have arrived by then.
    Figures of the rest are given beside those of all.
    """

    warm_up_seconds: NotNegative
    settled_seconds: Positive | None = None
    measured_seconds: Positive | None = None
    rps: Rates | None = None
    phases: Annotated[list[Phase], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Measure":
        given = [key for key in ("measured_seconds", "rps") if getattr(self, key) is not None]
        if self.phases and given:
            raise ValueError(f"{given[0]}: {getattr(self, given[0])}; not allowed beside phases")
        missing = [key for key in ("measured_seconds", "rps") if key not in given]
        if not self.phases and missing:
            raise ValueError(f"{missing[0]}: missing; allowed: measured_seconds and rps, or phases")
        if self.settled_seconds is not None and self.settled_seconds >= self.seconds:
            raise ValueError(
                f"settled_seconds: {self.settled_seconds:g}; allowed: less than the measured {self.seconds:g} s"
            )
        return self

    @property
    def plan(self) -> list[Phase]:
        """The measured part's phases in order. A constant load is a single one."""
        if self.phases:
            return self.phases
        return [Phase(seconds=self.measured_seconds or 0, rps=self.rps or {})]

    @property
    def seconds(self) -> float:
        """Length of the measured part."""
        return sum(phase.seconds for phase in self.plan)

    @property
    def first_rps(self) -> Rates:
        """Rates at the beginning of the measured part, before any burst; those of the warm-up."""
        return self.plan[0].rps

    def named_rates(self) -> Iterator[tuple[str, Rates]]:
        """Yields every set of rates with its key below load.measure, for error texts."""
        if self.rps is not None:
            yield "rps", self.rps
        for i, phase in enumerate(self.phases or []):
            yield f"phases[{i}].rps", phase.rps
            if phase.to_rps is not None:
                yield f"phases[{i}].to_rps", phase.to_rps


class Load(Model):
    profile: list[Step] = Field(default_factory=list)
    measure: Measure


@dataclass(frozen=True)
class Segment:
    """A linear piece of a cluster's load: `rps` at its start and `to_rps` at its end."""

    seconds: float
    rps: float
    to_rps: float

    @property
    def requests(self) -> float:
        """Expected number of requests."""
        return self.seconds * (self.rps + self.to_rps) / 2


def segments(phases: list[Phase], cluster: str) -> list[Segment]:
    """Returns a cluster's load as linear pieces, which together are as long as the phases."""
    return [segment for phase in phases for segment in _pieces(phase, cluster)]


def _pieces(phase: Phase, cluster: str) -> Iterator[Segment]:
    for start, end, factor in _spans(phase):
        first, last = phase.rate(cluster, start), phase.rate(cluster, end)
        yield Segment(end - start, factor * first, factor * last)


def _spans(phase: Phase) -> Iterator[tuple[float, float, float]]:
    """Yields (start, end, factor) of a phase's parts with and without a burst, in order."""
    burst = phase.burst
    if burst is None:
        yield 0.0, phase.seconds, 1.0
        return
    i, start = 0, 0.0
    while start < phase.seconds:
        ends = min(start + burst.seconds, phase.seconds)
        yield start, ends, burst.factor
        i += 1
        start = min(i * burst.every_seconds, phase.seconds)
        if ends < start:
            yield ends, start, 1.0
