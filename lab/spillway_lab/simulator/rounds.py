"""Simulates a scenario's rounds: every policy, repeatedly, under the same load and events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.scenario import variants
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.loads import Segment, segments
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator import control, observed
from spillway_lab.simulator.autoscalers import Autoscalers, PodCount
from spillway_lab.simulator.control import SIMULATED
from spillway_lab.simulator.engine import Ended, Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World, not_simulated
from spillway_lab.stack import egress
from spillway_lab.stack.egress import Egress

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
    papa: dict[str, int]  # PAPA's steps by their outcome
    pods: tuple[PodCount, ...]  # what autoscalers did


def lengthened(scenario: Scenario, seconds: float) -> Scenario:
    """Returns the scenario with a longer measured part, and a warm-up of at least a tenth of it.

    Simulated time costs little, and queues that are busy fluctuate slowly. Only a constant load
    without events and autoscalers can be longer.
    """
    document = scenario.document
    measure = document.load.measure
    if document.events or document.autoscalers or measure.phases or measure.seconds >= seconds:
        return scenario
    warm_up = max(measure.warm_up_seconds, seconds / 10)
    longer = measure.model_copy(update={"measured_seconds": seconds, "warm_up_seconds": warm_up})
    load = document.load.model_copy(update={"measure": longer})
    return scenario.model_copy(update={"document": document.model_copy(update={"load": load})})


def check(scenario: Scenario, policies: list[str]) -> None:
    """Raises InvalidInput that lists what cannot be simulated."""
    problems = [
        f"policies: {name!r} is not simulated; allowed: {', '.join(SIMULATED)}"
        for name in policies
        if name not in SIMULATED
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
    folder.mkdir(parents=True, exist_ok=True)
    repetitions = scenario.document.repetitions
    for policy, repetition in variants.interleaved(policies, repetitions):
        show(f"{policy} {repetition + 1} of {repetitions}")
        yield _Round(scenario, policy, _seed(seed, repetition)).run(repetition, folder)


def _seed(seed: int, repetition: int) -> int:
    """Returns the seed of a repetition's rounds. No other run has it."""
    return int(np.random.SeedSequence([seed, repetition]).generate_state(1, np.uint64)[0])


class _Round:
    def __init__(self, scenario: Scenario, policy: str, seed: int) -> None:
        self._scenario, self._policy = scenario, policy
        self._world = World(Indices(scenario))
        self._engine = Engine(self._world, seed)
        self._autoscalers = Autoscalers(self._world, self._engine)
        self._ended: list[Ended] = []

    def run(self, repetition: int, folder: Path) -> Simulated:
        measure = self._scenario.document.load.measure
        warm_up, end = measure.warm_up_seconds, measure.warm_up_seconds + measure.seconds
        self._engine.load(_load(self._scenario), poisson=True)
        self._engine.set_weights(self._engine.indices.weights({}))
        sent = np.zeros_like(self._world.rtt_ms)
        with control.of(self._scenario, self._policy, self._world, folder) as policy:
            if policy.watches:
                self._engine.watch_answers()
            for stop in _stops(self._scenario, policy.period_s, *self._autoscalers.periods_s):
                self._engine.run(stop)
                counts, ended = self._engine.counts(), self._engine.ended()
                self._ended.append(ended)
                sent += counts.bytes if stop > warm_up else 0.0
                seen = observed.period(self._world, counts, ended)
                changed = self._happen(stop)
                if stop < end:
                    changed |= self._autoscalers.act(stop)
                if stop < end and seen.seconds > 0:
                    rules = policy.rules(seen, self._engine.answers(), stop, changed)
                    if rules is not None:
                        self._engine.set_weights(self._engine.indices.weights(rules))
        samples = self._samples(warm_up, end)
        usd = self._egress(sent).usd_per_hour if len(samples) else None
        happened, papa = self._engine.happened, dict(policy.papa)
        pods = tuple(self._autoscalers.counts)
        return Simulated(self._policy, repetition, samples, usd, happened, policy.plans, papa, pods)

    def _happen(self, now_s: float) -> bool:
        """Applies the events of this second. Returns whether there were any."""
        document = self._scenario.document
        warm_up = document.load.measure.warm_up_seconds
        events = [event for event in document.events if warm_up + event.at_seconds == now_s]
        for event in events:
            for place in self._world.change(event):
                self._engine.follow_place(*place)
        if events:
            self._engine.follow_links()
        return bool(events)

    def _egress(self, sent: np.ndarray) -> Egress:
        """Returns the traffic of the measured part; `sent` are its bytes, [from, to]."""
        prices, clusters = egress.prices(self._scenario), self._scenario.clusters
        by_pair = {pair: float(sent[clusters.index(pair[0]), clusters.index(pair[1])]) for pair in prices}
        return egress.between({}, by_pair, prices, self._scenario.document.load.measure.seconds)

    def _samples(self, begin: float, end: float) -> RoundSamples:
        at_s, *columns = (
            np.concatenate([getattr(each, column.name) for each in self._ended]) for column in fields(Ended)
        )
        order = np.argsort(at_s, kind="stable")
        kept = order[(at_s[order] >= begin) & (at_s[order] < end)]
        return RoundSamples(at_s[kept] - begin, *(column[kept] for column in columns))


def _load(scenario: Scenario) -> dict[str, list[Segment]]:
    measure, found = scenario.document.load.measure, {}
    for cluster in scenario.clusters:
        first = measure.first_rps.get(cluster, 0.0)
        before = [Segment(measure.warm_up_seconds, first, first)] if measure.warm_up_seconds else []
        found[cluster] = before + segments(measure.plan, cluster)
    return found


def _stops(scenario: Scenario, *periods_s: float) -> list[float]:
    """Returns the seconds at which something is read or changed, in order."""
    measure = scenario.document.load.measure
    end = measure.warm_up_seconds + measure.seconds
    looks = [at for period_s in periods_s for at in np.arange(period_s, end, period_s).tolist()]
    events = [measure.warm_up_seconds + event.at_seconds for event in scenario.document.events]
    return sorted({*looks, *events, measure.warm_up_seconds, end, end + _DRAIN_S})
