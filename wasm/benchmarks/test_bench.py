"""The arithmetic of the filter's benchmark, and the benchmark itself in miniature."""

import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import filter as command
from filter_bench.bench import DIRECTIONS
from filter_bench.summary import SATURATION, Sample, summarize


def sample(
    number: int, direction: str, filtered: bool, cpu_us: float, p50: float, rate: int = 2000
) -> Sample:
    return Sample(number, direction, rate, filtered, 2000.0, p50, 2 * p50, cpu_us, 0.1)


def test_medians_of_paired_rounds() -> None:
    """A round that was slow for both variants does not count as the filter's cost."""
    samples = []
    for number, slow in enumerate((1.0, 3.0, 1.0)):
        samples.append(sample(number, "inbound", False, 60 * slow, 0.2 * slow))
        samples.append(sample(number, "inbound", True, 75 * slow, 0.2 * slow + 0.03))
    figures = summarize(samples, 2000)
    assert figures["cpu_ratio"] == 1.25
    assert figures["added_p50_ms"] == 0.03
    assert figures["rates"]["2000"]["inbound"]["spread"]["cpu_added_us"] == [15.0, 45.0]


def test_headline_is_the_worse_hop() -> None:
    """No hop hides behind the other, and other rates than the headline's do not count."""
    samples = []
    for direction, cpu in (("inbound", 80.0), ("outbound", 70.0)):
        for rate in (2000, SATURATION):
            samples.append(sample(0, direction, False, 50.0, 0.2, rate))
            samples.append(sample(0, direction, True, cpu + 20 * (rate == SATURATION), 0.3, rate))
    figures = summarize(samples, 2000)
    assert figures["cpu_ratio"] == 1.6
    assert list(figures["rates"]) == ["2000", "saturation"]
    assert figures["rates"]["saturation"]["outbound"]["cpu_ratio"] == 1.8


@pytest.mark.component
def test_benchmark_in_miniature() -> None:
    """Every request of both hops is answered and leaves exactly one span at a real OTLP service."""
    given = "--rounds 1 --seconds 0.5 --rates 200 0 --headline-rate 200 --warm-up 0.2 --warm-up-rate 100"
    figures = command.measure(command.arguments_of(given.split()))
    assert figures["requests_traced"] == figures["spans_sent"] > 0
    assert figures["spans_dropped"] == 0
    assert {"added_p50_ms", "added_p99_ms", "cpu_ratio"} <= figures.keys()
    for rate, direction in product(("200", "saturation"), DIRECTIONS):
        for variant in ("plain", "filtered"):
            assert figures["rates"][rate][direction][variant]["answered"] > 0
