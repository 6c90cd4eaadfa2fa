"""Intervals contain the true value as often as they say, and what is not known stays unknown."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_lab.report import resampling
from spillway_lab.report.results import Machine, Round, Run
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.report.statistics import METRICS, UNKNOWN, Comparison, Estimate

TIMEOUT_MS = 5000.0
MEASURED_S = 30.0


def samples(latency: np.ndarray, failed: int = 0) -> RoundSamples:
    """Requests that are evenly spaced over the measured time; the last `failed` of them fail."""
    count = len(latency)
    ok = np.arange(count) < count - failed
    return RoundSamples(
        at_s=(np.arange(count) * MEASURED_S / max(1, count)).astype(np.float32),
        latency_ms=np.where(ok, latency, TIMEOUT_MS).astype(np.float32),
        ok=ok,
        cluster=np.zeros(count, np.uint8),
        kind=np.zeros(count, np.uint8),
    )


def compared(
    policies: Mapping[str, list[RoundSamples]], egress: Mapping[str, list[float | None]] | None = None
) -> Comparison:
    """A comparison of policies, each with the samples of its repetitions from 0 on."""
    rounds, columns = [], []
    for policy, repetitions in policies.items():
        for number, each in enumerate(repetitions):
            usd = egress[policy][number] if egress else 0.5
            machine = Machine(cores=2, utilisation=0.5, pressure=0.0)
            rounds.append(
                Round(policy, number, f"{policy}-{number}.npz", usd, len(each), each.failed, machine, False)
            )
            columns.append(each)
    run = Run(
        scenario="any",
        question="",
        kind="simulated",
        time_scale=1.0,
        seed=1,
        command="any",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        clusters=("west",),
        requests=("gateway GET /",),
        measured_seconds=MEASURED_S,
        rounds=tuple(rounds),
    )
    return Comparison(run, columns)


def contained(found: Estimate, true: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= true <= found.high


def coverage(make: Callable[[np.random.Generator], bool], times: int = 100) -> float:
    """How often intervals contain the true value, in trials with fixed seeds."""
    return float(np.mean([make(np.random.default_rng([7, trial])) for trial in range(times)]))


def test_intervals_contain_the_true_figures_of_independent_requests() -> None:
    """At least 88 % of the 95 % intervals of mean, median and p90 do, by three rounds.

    Requests are independent and exponential, so the true figures are known. 120 intervals that
    contain it with probability 0.95 would be below 0.88 once in a thousand times; the seeds are
    fixed, so this test has the same outcome each time.
    """
    true = {"mean_ms": 50.0, "p50_ms": 50 * np.log(2), "p90_ms": 50 * np.log(10)}

    def trial(random: np.random.Generator) -> dict[str, bool]:
        comparison = compared({"a": [samples(random.exponential(50, 400)) for _ in range(3)]})
        return {name: contained(comparison.estimate("a", name), value) for name, value in true.items()}

    trials = [trial(np.random.default_rng([7, number])) for number in range(120)]
    for name in true:
        assert np.mean([each[name] for each in trials]) >= 0.88, name


@pytest.mark.parametrize("rounds", [3, 5])
def test_intervals_contain_the_true_mean_of_rounds_that_differ(rounds: int) -> None:
    """Rounds that differ by 20 % widen the interval, although each round alone is precise."""

    def trial(random: np.random.Generator) -> bool:
        levels = 50 * np.exp(random.normal(0, 0.2, rounds))
        comparison = compared({"a": [samples(random.exponential(level, 400)) for level in levels]})
        return contained(comparison.estimate("a", "p50_ms"), 50 * np.log(2))

    assert coverage(trial) >= 0.88


def test_ratios_are_paired_by_repetition() -> None:
    """What both policies of a repetition share, a slow machine, does not widen their ratio."""
    widths = []

    def trial(random: np.random.Generator) -> bool:
        levels = 50 * np.exp(random.normal(0, 0.5, 3))
        comparison = compared(
            {
                "a": [samples(random.exponential(0.8 * level, 400)) for level in levels],
                "b": [samples(random.exponential(level, 400)) for level in levels],
            }
        )
        found = comparison.ratio("a", "b", "mean_ms")
        widths.append(np.log(found.high / found.low))
        return contained(found, 0.8)

    assert coverage(trial) >= 0.88
    assert np.median(widths) < 0.6, "levels alone would give exp(0.5 x 4.3 / sqrt(3) x 2)"


def test_a_change_of_load_over_time_does_not_widen_a_ratio() -> None:
    """Blocks are drawn at the same times for both policies, so a burst in both cancels out."""
    burst = np.where(np.arange(3000) % 3000 < 1500, 10.0, 200.0)
    noise = np.random.default_rng(3).uniform(0.99, 1.01, (2, 3, 3000))
    policies = {
        "a": [samples(0.8 * burst * noise[0, i]) for i in range(3)],
        "b": [samples(burst * noise[1, i]) for i in range(3)],
    }
    comparison = compared(policies)
    ratio, mean = comparison.ratio("a", "b", "mean_ms"), comparison.estimate("a", "mean_ms")
    assert ratio.high - ratio.low < 0.01
    assert mean.high - mean.low > 5


def test_failed_requests_are_in_the_distribution() -> None:
    """A policy that fails 2 % of its requests has them in its p99 and its mean, as time-outs."""
    comparison = compared({"a": [samples(np.full(500, 10.0), failed=10) for _ in range(3)]})
    assert comparison.estimate("a", "p99_ms").value == TIMEOUT_MS
    assert comparison.estimate("a", "p90_ms").value == 10
    assert comparison.estimate("a", "mean_ms").value == pytest.approx(0.98 * 10 + 0.02 * TIMEOUT_MS)
    assert comparison.estimate("a", "failed_share").value == pytest.approx(0.02)


def test_one_round_has_figures_and_no_interval() -> None:
    """Nothing shows how rounds differ, so the bounds are unknown, of figures and of ratios."""
    comparison = compared({name: [samples(np.full(100, 10.0), failed=1)] for name in "ab"})
    for metric in METRICS:
        assert comparison.estimate("a", metric).value is not None
        assert comparison.ratio("a", "b", metric).value == pytest.approx(1)
        for found in (comparison.estimate("a", metric), comparison.ratio("a", "b", metric)):
            assert (found.low, found.high) == (None, None)
            assert not found.bounded


def test_no_sample_is_unknown() -> None:
    """Without a request, or without such a policy, nothing is known: not even that it is 0."""
    comparison = compared(
        {"a": [samples(np.empty(0)) for _ in range(3)], "b": [samples(np.ones(9))] * 3},
        {"a": [None] * 3, "b": [0.5] * 3},
    )
    for metric in METRICS:
        assert comparison.estimate("a", metric) == UNKNOWN
        assert comparison.estimate("absent", metric) == UNKNOWN
        assert comparison.ratio("a", "b", metric) == UNKNOWN
        assert comparison.difference("b", "a", metric) == UNKNOWN


def test_all_failed_is_an_unknown_latency() -> None:
    """Where each request failed, the latency is unknown, and the share of failures is 1."""
    comparison = compared(
        {
            "a": [samples(np.ones(50), failed=50) for _ in range(3)],
            "b": [samples(np.ones(50)) for _ in range(3)],
        }
    )
    assert comparison.estimate("a", "mean_ms") == comparison.estimate("a", "p99_ms") == UNKNOWN
    assert comparison.ratio("a", "b", "p50_ms") == UNKNOWN
    failed = comparison.estimate("a", "failed_share")
    assert failed.value == failed.high == 1
    assert 0.9 < failed.low < 1


def test_no_failure_in_few_requests_is_not_never() -> None:
    """The upper bound of a share of failures is above 0 by Wilson's interval, as n is finite."""
    comparison = compared({"a": [samples(np.ones(100)) for _ in range(3)]})
    found = comparison.estimate("a", "failed_share")
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(1.96**2 / (300 + 1.96**2), rel=1e-3)


def test_a_ratio_to_nothing_is_unknown_and_the_difference_is_not() -> None:
    """A policy that sends nothing to other clusters pays 0: by what factor less has no answer."""
    policies = {name: [samples(np.ones(30)) for _ in range(3)] for name in "ab"}
    comparison = compared(policies, {"a": [0.1, 0.2, 0.3], "b": [0.0, 0.0, 0.0]})
    assert comparison.ratio("a", "b", "egress_usd_per_hour") == UNKNOWN
    found = comparison.difference("a", "b", "egress_usd_per_hour")
    assert found.value == pytest.approx(0.2)
    # Student's t for three rounds: 4.303 x 0.1 / sqrt(3)
    assert found.high - 0.2 == pytest.approx(0.248, rel=0.1)


def test_only_repetitions_of_both_policies_are_compared() -> None:
    """A repetition that one of them lacks is in no ratio."""
    comparison = compared(
        {"a": [samples(np.full(60, 10.0))] * 3, "b": [samples(np.full(60, v)) for v in (20.0, 20.0)]}
    )
    found = comparison.ratio("a", "b", "mean_ms")
    assert found.value == pytest.approx(0.5)
    assert found.bounded


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=60), min_size=2, max_size=4),
    st.floats(0.25, 4),
)
def test_an_interval_contains_its_own_value(rounds: list[list[float]], factor: float) -> None:
    """The value is within its bounds, and a policy k times as slow has the ratio k everywhere."""
    comparison = compared(
        {
            "a": [samples(np.array(each)) for each in rounds],
            "b": [samples(factor * np.array(each)) for each in rounds],
        }
    )
    for metric in ("mean_ms", "p50_ms", "p90_ms", "p99_ms"):
        found = comparison.estimate("a", metric)
        assert found.low <= found.value <= found.high
        ratio = comparison.ratio("b", "a", metric)
        assert [ratio.low, ratio.value, ratio.high] == pytest.approx([factor] * 3, rel=1e-4)
        assert comparison.difference("a", "a", metric) == Estimate(0, 0, 0)


@given(st.lists(st.floats(0.125, 1e4, width=32), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_a_value_that_was_measured(values: list[float], quantile: float) -> None:
    """At least that share of the requests took as long or less, and no lower value has that."""
    found = resampling.at_quantile(np.array(values), quantile)
    assert found in values
    assert np.mean(np.array(values) <= found) >= quantile - 1e-9
    assert np.mean(np.array(values) < found) < quantile + 1e-9


def test_thinned_latencies_give_the_quantiles_of_all() -> None:
    """Replicates of many requests use latencies at even ranks; their median is the value itself."""
    random = np.random.default_rng(5)
    rounds = [samples(random.lognormal(3, 1, 20_000)) for _ in range(2)]
    counts = [resampling.block_draws(10, 1, number) for number in range(2)]
    found = resampling.statistics(rounds, counts, MEASURED_S)
    for name in resampling.QUANTILES:
        assert np.median(found[name].replicates) == pytest.approx(found[name].value, rel=0.01)


@pytest.mark.parametrize(("measured_s", "blocks"), [(0.5, 1), (4, 4), (10, 10), (60, 10), (3600, 10)])
def test_blocks_are_no_shorter_than_a_second(measured_s: float, blocks: int) -> None:
    """A round has ten blocks, and fewer if it is short: a block holds what belongs together."""
    assert resampling.blocks_of(measured_s) == blocks


def test_two_rounds_that_differ_have_a_wide_interval() -> None:
    """Two rounds say little about how rounds differ, so Student's t has one degree of freedom."""
    comparison = compared({"a": [samples(np.full(300, level)) for level in (50.0, 60.0)]})
    found = comparison.estimate("a", "mean_ms")
    assert found.low < 30
    assert found.high > 100
