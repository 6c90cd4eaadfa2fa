"""The arithmetic of the filter's benchmark, and a small run of the benchmark itself."""

import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import filter as command
from filter_bench.bench import DIRECTIONS
from filter_bench.envoys import ROOT
from filter_bench.summary import BASELINE, FILTERED, PLAIN, SATURATION, Sample, summarize


def sample(number: int, direction: str, variant: str, cpu_us: float, p50: float, rate: int = 2000) -> Sample:
    """Returns a sample whose p99 is twice its p50."""
    return Sample(number, direction, rate, variant, 2000.0, p50, 2 * p50, cpu_us, 0.1)


def test_medians_of_paired_rounds() -> None:
    """A round that is slow for both variants does not add to the filter's cost."""
    samples = []
    for number, slow in enumerate((1.0, 3.0, 1.0)):
        samples.append(sample(number, "inbound", PLAIN, 60 * slow, 0.2 * slow))
        samples.append(sample(number, "inbound", FILTERED, 75 * slow, 0.2 * slow + 0.03))
    figures = summarize(samples, 2000)
    assert figures["cpu_ratio"] == 1.25
    assert figures["added_p50_ms"] == 0.03
    assert figures["rates"]["2000"]["inbound"]["spread"]["cpu_added_us"] == [15.0, 45.0]


def test_headline_is_the_worse_hop() -> None:
    """The headline is that of the worse hop. Rates other than the headline's do not count."""
    samples = []
    for direction, cpu in (("inbound", 80.0), ("outbound", 70.0)):
        for rate in (2000, SATURATION):
            samples.append(sample(0, direction, PLAIN, 50.0, 0.2, rate))
            samples.append(sample(0, direction, FILTERED, cpu + 20 * (rate == SATURATION), 0.3, rate))
    figures = summarize(samples, 2000)
    assert figures["cpu_ratio"] == 1.6
    assert list(figures["rates"]) == ["2000", "saturation"]
    assert figures["rates"]["saturation"]["outbound"]["cpu_ratio"] == 1.8


def test_a_baseline_is_compared_round_by_round() -> None:
    """A baseline is compared with the build under test within each round, not across two runs."""
    samples = []
    for number, slow in enumerate((1.0, 2.0, 4.0)):
        for variant, cpu in ((PLAIN, 50.0), (BASELINE, 60.0), (FILTERED, 66.0)):
            samples.append(sample(number, "inbound", variant, cpu * slow, 0.2))
    hop = summarize(samples, 2000)["rates"]["2000"]["inbound"]
    assert (hop["cpu_ratio"], hop["baseline_over_plain"]["cpu_ratio"]) == (1.32, 1.2)
    assert hop["filtered_over_baseline"]["cpu_ratio"] == 1.1
    assert hop["filtered_over_baseline"]["spread"]["cpu_added_us"] == [6.0, 24.0]
    assert hop[BASELINE]["cpu_us"] == 120.0


@pytest.mark.component
def test_benchmark_in_miniature() -> None:
    """Every request of both hops is answered and leaves exactly one span at a real OTLP service.

    The build under test is compared with itself.
    """
    given = "--rounds 1 --seconds 0.5 --rates 200 0 --headline-rate 200 --warm-up 0.2 --warm-up-rate 100"
    baseline = ["--baseline", str(ROOT / ".spillway/wasm/spillway_filter.wasm")]
    figures = command.measure(command.arguments_of(given.split() + baseline))
    assert figures["requests_traced"] == figures["spans_sent"] > 0
    assert figures["spans_dropped"] == 0
    assert {"added_p50_ms", "added_p99_ms", "cpu_ratio"} <= figures.keys()
    for rate, direction in product(("200", "saturation"), DIRECTIONS):
        for variant in (PLAIN, BASELINE, FILTERED):
            assert figures["rates"][rate][direction][variant]["answered"] > 0
