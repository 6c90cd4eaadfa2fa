"""The runner of scenarios: one stack, one profile, and rounds of policies in interleaved order.

Load never stops between rounds. A round is measured when its policy is in force at every Envoy,
the warm-up is over and the queues have settled.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from spillway_lab.experiments import measured, settling, theory
from spillway_lab.experiments.measured import Measured
from spillway_lab.load import machine, run_delay, targets
from spillway_lab.load.kinds import kinds
from spillway_lab.load.samples import Samples, between
from spillway_lab.load.stream import Options, Stream, check_sent, stream
from spillway_lab.report import outcome, results
from spillway_lab.report.progress import Progress
from spillway_lab.report.results import Run
from spillway_lab.scenario import variants
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.loads import CLIENT_TIMEOUT_S, Segment, segments
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import egress, stack
from spillway_lab.stack.changes import Changes
from spillway_lab.stack.control import Control, InForce
from spillway_lab.stack.in_flight import in_flight
from spillway_lab.stack.periods import FROZEN_S
from spillway_lab.stack.stack import LabStack
from spillway_lab.stack.switching import Switching

_START_S = 180.0
_LOOK_S = 1.0  # between two looks at a running round
# A guard, not a claim: queues that never settle are measured as they are.
_SETTLE_S = 60.0


def run(scenario: Scenario, name: str, out: Path | None = None) -> Run:
    """Runs a scenario live. Prints progress to stderr and results to stdout.

    Files are written to `out`/<scenario>, or to the run folder. Raises InvalidInput when a policy
    cannot be run live.
    """
    refuse(scenario)
    progress, started = Progress(), datetime.now(UTC)
    # Profiling needs a known routing, whichever policies are compared afterwards.
    prepared = stack.prepare(scenario, name, policy="local", partitions=stack.ONE_PARTITION)
    with stack.running(prepared):
        prepared.supervisor.wait_ready(_START_S, progress.starting)
        progress.end(f"{len(prepared.supervisor.processes())} processes ready")
        running = Running(scenario, prepared, progress)
        with running.load() as load:
            running.profile(load)
            found = [running.round(load, *each) for each in _order(scenario)]
            by_cluster = load.end(kinds(prepared.scenario, prepared.plan))
        _check_sent(prepared.scenario, found, by_cluster)
        predicted = {key: asdict(value) for key, value in theory.predict(scenario).items()}
        facts = {"predicted": predicted, "streams": stack.streams()}
        whole, columns = measured.run_of(scenario, found, by_cluster, started, facts)
        folder = (out or prepared.run / "results") / scenario.name
        results.write(folder, whole, columns)
        assert running.last is not None  # a scenario has at least one policy
        shown = measured.results(scenario, found, by_cluster)
        outcome.show(prepared, whole, columns, shown, running.last, measured.machine(found), folder)
    return whole


def refuse(scenario: Scenario) -> None:
    """Raises InvalidInput that names each policy and key that cannot be run live, and why."""
    _, problems = variants.live(scenario.document.policies)
    problems += [
        f"autoscalers.{service}: a live run starts all pods before it begins, and has no autoscaler; "
        "allowed: simulations"
        for service in scenario.document.autoscalers
    ]
    measure, k = scenario.document.load.measure, scenario.document.time_scale
    seconds = (measure.warm_up_seconds + measure.seconds) * k + _SETTLE_S
    frozen = [policy for policy in scenario.document.policies if variants.VARIANTS[policy].frozen_curves]
    if frozen and seconds > FROZEN_S:
        problems.append(
            f"load.measure: a round takes {seconds:.0f} s; allowed with {frozen[0]}: {FROZEN_S} s"
        )
    if problems:
        raise InvalidInput([f"scenario {scenario.name}: {problem}" for problem in problems])


def _order(scenario: Scenario) -> list[tuple[str, int]]:
    return variants.interleaved(scenario.document.policies, scenario.document.repetitions)


class Running:
    """A scenario on a running stack. `last` is the ruleset of the last round."""

    def __init__(self, scenario: Scenario, prepared: LabStack, progress: Progress) -> None:
        self._stack, self._progress = prepared, progress
        # All that follows is in the machine's time, as the stack's own scenario.
        self._document, self._scale = prepared.scenario.document, scenario.document.time_scale
        self._control = Control(prepared)
        self._switching = Switching(prepared, self._control)
        self._changes = Changes(prepared)
        self._all = len(_order(scenario))
        self._done = 0
        self.last: InForce | None = None

    @contextmanager
    def load(self) -> Iterator[Stream]:
        scenario, plan = self._stack.scenario, self._stack.plan
        lines = {cluster: targets.targets(scenario, plan, cluster) for cluster in scenario.clusters}
        options = Options(self._stack.run / "load", timeout_s=CLIENT_TIMEOUT_S * self._scale)
        with stream({c: found for c, found in lines.items() if found}, self._most(), options) as running:
            yield running

    def _most(self) -> dict[str, float]:
        """Returns the highest rate of each cluster."""
        measure, steps = self._document.load.measure, self._document.load.profile
        return {
            cluster: max(
                [x for piece in segments(measure.plan, cluster) for x in (piece.rps, piece.to_rps)]
                + [step.rps.get(cluster, 0.0) for step in steps]
            )
            for cluster in self._stack.scenario.clusters
        }

    def profile(self, load: Stream) -> None:
        """Runs the load profile, so that curves are learned. What the clients see is not kept."""
        steps = self._document.load.profile
        for i, step in enumerate(steps, 1):
            self._progress.stage(f"profile {i} of {len(steps)}")
            load.steady(step.rps)
            self._wait(load, step.seconds)
        load.steady(self._document.load.measure.first_rps)
        self._progress.end(self._control.line())

    def _wait(self, load: Stream, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            load.check()
            self._progress.show(self._control.line())
            time.sleep(min(_LOOK_S, left))

    def round(self, load: Stream, policy: str, repetition: int) -> Measured:
        """Measures the load under one policy once."""
        self._done += 1
        self._progress.stage(f"{self._done} of {self._all} {policy}")
        self._switching.bring(policy, self._progress.show)
        self._settle(load)
        found = self._measure(load, policy, repetition)
        self._changes.restore()
        self.last = self._control.in_force() or self.last
        self._progress.end(f"{found.machine} · {self._control.line()}")
        return found

    def _settle(self, load: Stream) -> None:
        """Waits for the warm-up, and then until queues do not drain any more."""
        began, seen = time.monotonic(), []
        warm_up = self._document.load.measure.warm_up_seconds
        while (at := time.monotonic() - began) < warm_up + _SETTLE_S:
            seen.append((at, in_flight(self._stack.plan)))
            if at >= warm_up and settling.settled(seen):
                return
            load.check()
            self._progress.show(f"warming up, {seen[-1][1]} in flight · {self._control.line()}")
            time.sleep(_LOOK_S)

    def _measure(self, load: Stream, policy: str, repetition: int) -> Measured:
        measure = self._document.load.measure
        plan = {cluster: segments(measure.plan, cluster) for cluster in self._stack.scenario.clusters}
        before, busy = egress.read(self._stack.plan.pods), machine.read()
        serving = [*self._stack.serving(), *load.pids]
        delays = run_delay.read(serving)
        began = load.follow(plan)
        series = self._watch(load, measure.seconds)
        seconds = time.time() - began
        after, busyness = egress.read(self._stack.plan.pods), machine.between(busy, machine.read())
        waited_s = run_delay.between(delays, run_delay.read(serving))
        load.steady(measure.first_rps)
        cost = egress.between(before, after, egress.prices(self._stack.scenario), seconds)
        return Measured(
            policy,
            repetition,
            began,
            measure.seconds,
            cost.usd_per_hour,
            replace(busyness, run_delay=None if waited_s is None else waited_s / seconds),
            series,
        )

    def _watch(self, load: Stream, seconds: float) -> dict[str, list[tuple[float, float]]]:
        """Waits for the end of the measured part. Makes events happen, and looks at the rules."""
        began = time.monotonic()
        series: dict[str, list[tuple[float, float]]] = {}
        due = sorted(self._document.events, key=lambda event: event.at_seconds)
        looked = -_LOOK_S
        while (at := time.monotonic() - began) < seconds:
            if due and at >= due[0].at_seconds:
                self._happen(due.pop(0))
                continue
            if at - looked >= _LOOK_S:
                looked = at
                load.check()
                self._progress.show(f"measuring {at:.0f}/{seconds:.0f} s · {self._control.line()}")
                for name, value in self._control.shares().items():
                    series.setdefault(name, []).append((at, value))
            following = [seconds, looked + _LOOK_S] + [event.at_seconds for event in due[:1]]
            time.sleep(max(0.0, min(following) - (time.monotonic() - began)))
        return series

    def _happen(self, event: Event) -> None:
        self._progress.end(f"event: {self._changes.apply(event)}")


def _check_sent(scenario: Scenario, found: list[Measured], by_cluster: dict[str, Samples]) -> None:
    plan = scenario.document.load.measure.plan
    for cluster, samples in by_cluster.items():
        expected = _requests(segments(plan, cluster))
        for each in found:
            its_samples = between(samples, each.began_s, each.ended_s)
            check_sent(its_samples, expected, f"{each.policy} {each.repetition}, {cluster}")


def _requests(pieces: list[Segment]) -> float:
    return sum(piece.requests for piece in pieces)
