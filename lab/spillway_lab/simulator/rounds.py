"""Simulates a scenario's rounds: every policy, repeatedly, under the same load and events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.scenario import variants
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.loads import Segment, segments
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator import known_model
from spillway_lab.simulator.engine import Counts, Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.planner import PLANNED, Planner
from spillway_lab.simulator.world import World, not_simulated
from spillway_lab.stack import egress
from spillway_lab.stack.egress import Egress

CONTROL_S = 10.0  # between two looks at the load, as the optimizer's period
# What changes less needs no new rules: demand relative to itself, and the share of failures.
_SAME, _SAME_FAILED = 0.02, 0.005
# Standard deviations of a difference. There are many classes and looks, so three would be exceeded
# by chance about once in a round.
_NOISE = 4.0
_DRAIN_S = 60.0  # after the load: every request has ended


@dataclass(frozen=True)
class Simulated:
    """One round."""

    policy: str
    repetition: int
    samples: RoundSamples
    egress_usd_per_hour: float | None  # None: unknown, since no request was sent
    events: int  # of the simulation, such as arrivals and ends of service
    plans: int  # how often rules were planned


def lengthened(scenario: Scenario, seconds: float) -> Scenario:
    """Returns the scenario with a longer measured part, and a warm-up of at least a tenth of it.

    Simulated time costs little, and queues that are busy fluctuate slowly. Only a constant load
    without events can be longer.
    """
    document = scenario.document
    measure = document.load.measure
    if document.events or measure.phases or measure.seconds >= seconds:
        return scenario
    warm_up = max(measure.warm_up_seconds, seconds / 10)
    longer = measure.model_copy(update={"measured_seconds": seconds, "warm_up_seconds": warm_up})
    load = document.load.model_copy(update={"measure": longer})
    return scenario.model_copy(update={"document": document.model_copy(update={"load": load})})


def check(scenario: Scenario, policies: list[str]) -> None:
    """Raises InvalidInput that lists what cannot be simulated."""
    problems = [
        f"policies: {name!r} is not simulated; allowed: {', '.join(PLANNED)}"
        for name in policies
        if name not in PLANNED
    ]
    problems += not_simulated(scenario.document.events)
    if problems:
        raise InvalidInput([f"{scenario.name}: {problem}" for problem in problems])


def rounds(
    scenario: Scenario, policies: list[str], seed: int, folder: Path, show: Callable[[str], None]
) -> Iterator[Simulated]:
    """Yields all rounds, interleaved: A B C, C B A.

    Rounds of a repetition share a seed, so that all policies meet the same arrivals.
    """
    check(scenario, policies)
    planner = Planner(scenario, folder)
    repetitions = scenario.document.repetitions
    for policy, repetition in variants.interleaved(policies, repetitions):
        show(f"{policy} {repetition + 1} of {repetitions}")
        yield _Round(scenario, planner, policy, _seed(seed, repetition)).run(repetition)


def _seed(seed: int, repetition: int) -> int:
    """Returns the seed of a repetition's rounds. No other run has it."""
    return int(np.random.SeedSequence([seed, repetition]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class _Seen:
    """What was seen at one look, and what chance makes of it.

    The last rules stay while neither demand nor failures have changed. An overloaded service is
    avoided while its requests fail, so rules from that time must not stay when it has recovered.
    """

    demand: np.ndarray  # [class, cluster] of users, per second
    demand_noise: np.ndarray  # standard deviation
    failed: np.ndarray  # [class, cluster] share of the served and refused
    failed_noise: np.ndarray

    @classmethod
    def of(cls, counts: Counts, entries: list[int]) -> "_Seen":
        asked, arrived = counts.arrived[entries], np.maximum(counts.arrived, 1)
        failed = np.minimum(counts.failed / arrived, 1.0)
        return cls(
            asked / counts.seconds, np.sqrt(asked) / counts.seconds,
            failed, np.sqrt(failed * (1 - failed) / arrived),
        )  # fmt: skip

    def resembles(self, other: "_Seen") -> bool:
        demand = _NOISE * np.hypot(self.demand_noise, other.demand_noise)
        failed = _NOISE * np.hypot(self.failed_noise, other.failed_noise)
        return bool(
            (abs(self.demand - other.demand) <= np.maximum(_SAME * other.demand, demand)).all()
            and (abs(self.failed - other.failed) <= np.maximum(_SAME_FAILED, failed)).all()
        )


class _Round:
    def __init__(self, scenario: Scenario, planner: Planner, policy: str, seed: int) -> None:
        self._scenario, self._planner, self._policy = scenario, planner, policy
        self._world = World(Indices(scenario))
        self._engine = Engine(self._world, seed)
        self._planned: _Seen | None = None
        self._plans = 0

    def run(self, repetition: int) -> Simulated:
        measure = self._scenario.document.load.measure
        warm_up, end = measure.warm_up_seconds, measure.warm_up_seconds + measure.seconds
        self._engine.load(_load(self._scenario), poisson=True)
        self._engine.set_weights(self._engine.indices.weights({}))
        sent = np.zeros_like(self._world.rtt_ms)
        for stop in _stops(self._scenario):
            self._engine.run(stop)
            counts = self._engine.counts()
            sent += counts.bytes if stop > warm_up else 0.0
            events = [e for e in self._scenario.document.events if warm_up + e.at_seconds == stop]
            for event in events:
                for place in self._world.change(event):
                    self._engine.follow_place(*place)
            if events:
                self._engine.follow_links()
            if stop < end and counts.seconds > 0:
                self._plan(known_model.document(self._world, counts, stop), bool(events), counts)
        samples = self._samples(warm_up, end)
        usd = self._egress(sent).usd_per_hour if len(samples) else None
        return Simulated(self._policy, repetition, samples, usd, self._engine.happened, self._plans)

    def _egress(self, sent: np.ndarray) -> Egress:
        """Returns the traffic of the measured part; `sent` are its bytes, [from, to]."""
        prices, clusters = egress.prices(self._scenario), self._scenario.clusters
        by_pair = {pair: float(sent[clusters.index(pair[0]), clusters.index(pair[1])]) for pair in prices}
        return egress.between({}, by_pair, prices, self._scenario.document.load.measure.seconds)

    def _plan(self, model: dict, changed: bool, counts: Counts) -> None:
        """Plans new rules, unless demand and failures are as they were at the last plan."""
        seen = _Seen.of(counts, self._entries())
        if not seen.demand.any():
            return
        if self._planned is not None and not changed and seen.resembles(self._planned):
            return
        self._engine.set_weights(self._engine.indices.weights(self._planner.rules(self._policy, model)))
        self._planned, self._plans = seen, self._plans + 1

    def _entries(self) -> list[int]:
        """Returns the classes that users ask for."""
        names = dict.fromkeys(request.class_id for request in self._scenario.document.requests)
        return [self._engine.indices.classes.index(name) for name in names]

    def _samples(self, begin: float, end: float) -> RoundSamples:
        found = self._engine.ended()
        kept = (found.at_s >= begin) & (found.at_s < end)
        at_s = found.at_s[kept] - begin
        columns = (found.latency_ms[kept], found.ok[kept], found.cluster[kept], found.kind[kept])
        order = np.argsort(at_s, kind="stable")
        return RoundSamples(at_s[order], *(column[order] for column in columns))


def _load(scenario: Scenario) -> dict[str, list[Segment]]:
    measure, found = scenario.document.load.measure, {}
    for cluster in scenario.clusters:
        first = measure.first_rps.get(cluster, 0.0)
        before = [Segment(measure.warm_up_seconds, first, first)] if measure.warm_up_seconds else []
        found[cluster] = before + segments(measure.plan, cluster)
    return found


def _stops(scenario: Scenario) -> list[float]:
    """Returns the seconds at which something is read or changed, in order."""
    measure = scenario.document.load.measure
    end = measure.warm_up_seconds + measure.seconds
    looks = np.arange(CONTROL_S, end, CONTROL_S).tolist()
    events = [measure.warm_up_seconds + event.at_seconds for event in scenario.document.events]
    return sorted({*looks, *events, measure.warm_up_seconds, end, end + _DRAIN_S})
