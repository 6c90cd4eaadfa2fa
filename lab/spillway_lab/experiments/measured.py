"""What a live run has measured, in scenario time: results for the report, and figures. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from spillway_lab.load.machine import Busyness, together
from spillway_lab.load.samples import Samples, between, concatenate
from spillway_lab.report.report import Result
from spillway_lab.report.results import Machine, Round, Run
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.scenario.loads import CLIENT_TIMEOUT_S
from spillway_lab.scenario.scenario import Scenario


@dataclass(frozen=True)
class Measured:
    """One round as it was observed, in the machine's time."""

    policy: str
    repetition: int
    began_s: float  # Unix time of the measured part's start
    seconds: float
    egress_usd_per_hour: float
    machine: Busyness
    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    @property
    def ended_s(self) -> float:
        return self.began_s + self.seconds


def run_of(
    scenario: Scenario,
    rounds: Sequence[Measured],
    by_cluster: Mapping[str, Samples],
    started: datetime,
    facts: Mapping[str, Any],
) -> tuple[Run, list[RoundSamples]]:
    """Returns the run and the samples of its rounds, divided by the time scale.

    `by_cluster` are all requests of the run, by the cluster where they entered.
    """
    document, k = scenario.document, scenario.document.time_scale
    columns = [columns_of(scenario, each, by_cluster) for each in rounds]
    return (
        Run(
            scenario=scenario.name,
            question=document.question,
            kind="live",
            time_scale=k,
            seed=None,
            command=f"make lab SCENARIO={shlex.quote(scenario.name)}",
            started=started,
            clusters=tuple(scenario.clusters),
            requests=tuple(request.class_id for request in document.requests),
            measured_seconds=document.load.measure.seconds,
            rounds=tuple(
                _round(each, its_columns, k) for each, its_columns in zip(rounds, columns, strict=True)
            ),
            facts=dict(facts),
        ),
        columns,
    )


def _round(given: Measured, columns: RoundSamples, k: float) -> Round:
    machine = given.machine
    return Round(
        policy=given.policy,
        repetition=given.repetition,
        samples=f"{given.policy}-{given.repetition}.npz",
        # An hour of the scenario is k hours long.
        egress_usd_per_hour=given.egress_usd_per_hour * k,
        sent=len(columns),
        failed=columns.failed,
        machine=Machine(machine.cores, machine.utilisation, machine.pressure, machine.run_delay),
        disturbed=machine.disturbed,
        series={
            name: tuple((at / k, value) for at, value in points) for name, points in given.series.items()
        },
    )


def columns_of(scenario: Scenario, given: Measured, by_cluster: Mapping[str, Samples]) -> RoundSamples:
    """Returns a round's requests in scenario time. A failed one has the client's timeout."""
    k = scenario.document.time_scale
    parts = {cluster: _of_round(found, given) for cluster, found in by_cluster.items()}
    samples = concatenate(parts.values())
    clusters = [np.full(len(part), scenario.clusters.index(cluster)) for cluster, part in parts.items()]
    latency = np.where(samples.ok, samples.latency_ms / k, CLIENT_TIMEOUT_S * 1000)
    return RoundSamples(
        at_s=((samples.at_s - given.began_s) / k).astype(np.float32),
        latency_ms=latency.astype(np.float32),
        ok=samples.ok,
        cluster=np.concatenate([*clusters, np.zeros(0)]).astype(np.uint8),
        kind=samples.kind.astype(np.uint8),
    )


def results(
    scenario: Scenario, rounds: Sequence[Measured], by_cluster: Mapping[str, Samples]
) -> dict[str, Result]:
    """Returns all rounds of each policy together, in scenario time, in the scenario's order."""
    k = scenario.document.time_scale
    found: dict[str, Result] = {}
    for policy in scenario.document.policies:
        its_rounds = [each for each in rounds if each.policy == policy]
        samples = concatenate(_of_round(x, each) for each in its_rounds for x in by_cluster.values())
        usd = [each.egress_usd_per_hour * k for each in its_rounds]
        stretched = replace(samples, latency_ms=samples.latency_ms / k)
        found[policy] = Result(stretched, sum(usd) / len(usd) if usd else float("nan"))
    return found


def machine(rounds: Sequence[Measured]) -> Busyness:
    """Returns how busy the machine was in all rounds together."""
    return together([each.machine for each in rounds])


def _of_round(samples: Samples, given: Measured) -> Samples:
    return between(samples, given.began_s, given.ended_s)
