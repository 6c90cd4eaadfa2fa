"""Results of experiments as figures: read, summarised, and without the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from spillway_lab.report import statistics
from spillway_lab.report.results import Kind, Round, Run
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.report.statistics import METRICS, Comparison, Estimate, Metric

Column = Annotated[
    np.ndarray,
    PlainValidator(lambda values: np.asarray(values, dtype=float)),
    PlainSerializer(lambda values: values.tolist()),
]
Points = tuple[Column, Column]  # x and y of a line
NO_POINTS: Points = (np.empty(0), np.empty(0))
_CDF_POINTS = 160
_TIME_POINTS = 60


@dataclass(frozen=True)
class PolicyFigures:
    """One policy of one run."""

    rounds: int
    requests: int
    figures: Mapping[Metric, Estimate]
    cdf: Points  # latency in ms, share of all requests; failed requests keep it below 1
    over_time: Points  # seconds, mean latency in ms
    series: Mapping[str, Points] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """One policy against another, by one metric."""

    ratio: Estimate  # of the other's figure over the first one's: above 1 if the first is better
    difference: Estimate  # the first minus the other


@dataclass(frozen=True)
class Setting:
    """What was run, when, and how busy the machine was in all rounds, from lowest to highest."""

    scenario: str
    question: str
    kind: Kind
    time_scale: float  # by how much the run was stretched; 1: not at all
    seed: int | None
    command: str  # runs it again
    started: datetime
    measured_seconds: float  # of each round, in scenario time
    cores: int  # 0: unknown
    utilisation: tuple[float, float] | None  # None: not measured
    pressure: tuple[float, float] | None
    rounds: int
    disturbed: int  # rounds
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFigures:
    """One run of one scenario."""

    setting: Setting
    policies: Mapping[str, PolicyFigures]
    pairs: Mapping[str, Mapping[str, Mapping[Metric, Pair]]]  # by policy, other policy and metric
    settled: "RunFigures | None" = None  # of the end alone, when control loops have arrived

    @property
    def disturbed(self) -> int:
        """The number of rounds in which the machine was too busy for a conclusion."""
        return self.setting.disturbed

    def pair(self, policy: str, other: str, metric: Metric) -> Pair:
        """Returns how two policies compare; unknown if one of them did not run."""
        unknown = Pair(statistics.UNKNOWN, statistics.UNKNOWN)
        return self.pairs.get(policy, {}).get(other, {}).get(metric, unknown)


def summarised(
    run: Run,
    samples: Sequence[RoundSamples],
    more_facts: Mapping[str, Any] | None = None,
    settled_s: float | None = None,
) -> RunFigures:
    """Returns the figures of a run, and those of what it measured after `settled_s` beside them."""
    settled = None
    if settled_s is not None and settled_s < run.measured_seconds:
        settled = summarised(*_end(run, samples, settled_s))
    comparison = Comparison(run, samples)
    rounds: dict[str, list[tuple[Round, RoundSamples]]] = {}
    for each, columns in zip(run.rounds, samples, strict=True):
        rounds.setdefault(each.policy, []).append((each, columns))
    policies = {
        policy: _policy(policy, found, comparison, run.measured_seconds) for policy, found in rounds.items()
    }
    pairs: dict[str, dict[str, dict[Metric, Pair]]] = {
        first: {
            second: {
                metric: Pair(
                    comparison.ratio(second, first, metric), comparison.difference(first, second, metric)
                )
                for metric in METRICS
            }
            for second in policies
            if second != first
        }
        for first in policies
    }
    return RunFigures(_setting(run, {**run.facts, **(more_facts or {})}), policies, pairs, settled)


def _end(run: Run, samples: Sequence[RoundSamples], begin_s: float) -> tuple[Run, list[RoundSamples]]:
    """Returns a run as if it had measured later. What is known of whole rounds alone is unknown."""
    kept = [columns.since(begin_s) for columns in samples]
    rounds = tuple(
        replace(each, egress_usd_per_hour=None, sent=len(columns), failed=columns.failed, series={})
        for each, columns in zip(run.rounds, kept, strict=True)
    )
    return replace(run, measured_seconds=run.measured_seconds - begin_s, rounds=rounds, facts={}), kept


def _setting(run: Run, facts: Mapping[str, Any]) -> Setting:
    machines = [each.machine for each in run.rounds]
    return Setting(
        scenario=run.scenario,
        question=run.question,
        kind=run.kind,
        time_scale=run.time_scale,
        seed=run.seed,
        command=run.command,
        started=run.started,
        measured_seconds=run.measured_seconds,
        cores=machines[0].cores if machines else 0,
        utilisation=_range([each.utilisation for each in machines]),
        pressure=_range([each.pressure for each in machines]),
        rounds=len(run.rounds),
        disturbed=sum(each.disturbed for each in run.rounds),
        facts=facts,
    )


def _range(shares: Sequence[float | None]) -> tuple[float, float] | None:
    known = [share for share in shares if share is not None]
    return (min(known), max(known)) if known else None


def _policy(
    policy: str, rounds: list[tuple[Round, RoundSamples]], comparison: Comparison, measured_s: float
) -> PolicyFigures:
    columns = [samples for _, samples in rounds]
    return PolicyFigures(
        rounds=len(rounds),
        requests=sum(len(each) for each in columns),
        figures={metric: comparison.estimate(policy, metric) for metric in METRICS},
        cdf=cdf(columns),
        over_time=over_time(columns, measured_s),
        series=_series([each for each, _ in rounds]),
    )


def cdf(rounds: Sequence[RoundSamples]) -> Points:
    """Returns latencies in ms and the share of all requests that were answered within them.

    A failed request has no latency, so the shares end below 1. Shape of both: at most 160 points.
    """
    latency = np.sort(np.concatenate([each.latency_ms[each.ok] for each in rounds] or [np.empty(0)]))
    if not len(latency):
        return np.empty(0), np.empty(0)
    share = np.arange(1, len(latency) + 1) / sum(len(each) for each in rounds)
    # Half of the points are at even ranks, half are in the highest 5 %, where lines bend.
    even = np.linspace(0, len(latency) - 1, _CDF_POINTS // 2)
    tail = np.linspace(0.95 * (len(latency) - 1), len(latency) - 1, _CDF_POINTS // 2)
    kept = np.unique(np.concatenate([even, tail]).astype(int))
    return latency[kept].astype(float), share[kept]


def over_time(rounds: Sequence[RoundSamples], measured_s: float) -> Points:
    """Returns the middles of equal times and the mean latency in ms of the requests sent in each.

    A time without requests is left out. Failed requests count with the client's timeout.
    """
    pieces = int(max(1, min(_TIME_POINTS, measured_s)))
    at = np.concatenate([each.at_s for each in rounds] or [np.empty(0)])
    latency = np.concatenate([each.latency_ms for each in rounds] or [np.empty(0)])
    piece = np.minimum((at / measured_s * pieces).astype(int), pieces - 1)
    count = np.bincount(piece, minlength=pieces)
    total = np.bincount(piece, weights=latency, minlength=pieces)
    kept = count > 0
    middles = (np.arange(pieces) + 0.5) * measured_s / pieces
    return middles[kept], total[kept] / count[kept]


def _series(rounds: Sequence[Round]) -> dict[str, Points]:
    """Returns each series of the first round that has it, without values that are unknown."""
    found: dict[str, Points] = {}
    for each in rounds:
        for name, points in each.series.items():
            known = [(at, value) for at, value in points if value is not None]
            if name not in found and known:
                found[name] = (np.array([at for at, _ in known]), np.array([value for _, value in known]))
    return found
