"""Runs whose figures are known, for tests of what is made of results."""

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
from spillway_lab.findings.gathered import RunFigures, summarised
from spillway_lab.report.results import Machine, Round, Run
from spillway_lab.report.round_samples import RoundSamples

TIMEOUT_MS = 5000.0
MEASURED_S = 30.0


def samples(mean_ms: float, failed_share: float, seed: list[int], requests: int = 300) -> RoundSamples:
    random = np.random.default_rng(seed)
    ok = np.arange(requests) >= round(failed_share * requests)
    latency = np.where(random.permutation(ok), random.gamma(4, mean_ms / 4, requests), TIMEOUT_MS)
    return RoundSamples(
        at_s=np.sort(random.uniform(0, MEASURED_S, requests)).astype(np.float32),
        latency_ms=latency.astype(np.float32),
        ok=latency < TIMEOUT_MS,
        cluster=random.integers(0, 2, requests, np.uint8),
        kind=np.zeros(requests, np.uint8),
    )


def made(
    mean_ms: Mapping[str, float],
    *,
    name: str = "two-clusters",
    repetitions: int = 3,
    disturbed: int = 0,
    failed_share: float = 0.0,
    kind: str = "live",
    facts: Mapping[str, object] | None = None,
) -> tuple[Run, list[RoundSamples]]:
    """A run with a policy for each mean latency; the first rounds are disturbed."""
    rounds, columns = [], []
    for number, (policy, mean) in enumerate(mean_ms.items()):
        for repetition in range(repetitions):
            its = samples(mean, failed_share, [number, repetition])
            busy = len(rounds) < disturbed
            rounds.append(
                Round(
                    policy=policy,
                    repetition=repetition,
                    samples=f"{policy}-{repetition}.npz",
                    egress_usd_per_hour=0.01 * (1 + number) + 0.0001 * repetition,
                    sent=len(its),
                    failed=its.failed,
                    machine=Machine(2, 0.9 if busy else 0.6, 0.3 if busy else 0.1),
                    disturbed=busy,
                    series={"west to east, share": ((0.0, 0.2), (15.0, None), (30.0, 0.4))},
                )
            )
            columns.append(its)
    run = Run(
        scenario=name,
        question="Is <this> | escaped?",
        kind=kind,  # type: ignore[arg-type]
        time_scale=1.0 if kind == "simulated" else 2.0,
        seed=7 if kind == "simulated" else None,
        command=f"make lab SCENARIO={name}",
        started=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        clusters=("west", "east"),
        requests=("gateway GET /items/{id}",),
        measured_seconds=MEASURED_S,
        rounds=tuple(rounds),
        facts=dict(facts or {}),
    )
    return run, columns


def figures(mean_ms: Mapping[str, float], **options: object) -> RunFigures:
    return summarised(*made(mean_ms, **options))  # type: ignore[arg-type]
