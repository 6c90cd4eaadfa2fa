"""Computes the figures of the benchmark from samples of alternated runs. Pure."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

SATURATION = 0
"""The rate that means: as fast as it goes."""
PLAIN, BASELINE, FILTERED = "plain", "baseline", "filtered"
"""Envoy alone, with another build of the filter, with the build under test."""
VARIANTS = (PLAIN, BASELINE, FILTERED)


@dataclass(frozen=True)
class Sample:
    """One run of one variant."""

    round: int
    direction: str
    rate: int
    """Requests per second that were asked for; `SATURATION`: as many as were answered."""
    variant: str
    answered: float
    """Answers per second."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of the Envoy process per request, user and system."""
    busy: float
    """Share of its core that Envoy used."""


def compared(pairs: list[tuple[Sample, Sample]]) -> dict:
    """Computes what the second sample of each pair adds to the first: medians over rounds.

    `spread` holds the least and the greatest value of each.
    """
    added = {
        "added_p50_ms": [b.p50_ms - a.p50_ms for a, b in pairs],
        "added_p99_ms": [b.p99_ms - a.p99_ms for a, b in pairs],
        "cpu_ratio": [b.cpu_us / a.cpu_us for a, b in pairs],
        "cpu_added_us": [b.cpu_us - a.cpu_us for a, b in pairs],
        "answered_ratio": [b.answered / a.answered for a, b in pairs],
    }
    out: dict = {name: round(statistics.median(values), 4) for name, values in added.items()}
    out["spread"] = {name: [round(min(values), 4), round(max(values), 4)] for name, values in added.items()}
    return out


def of_direction(samples: Iterable[Sample]) -> dict:
    """Returns the figures of one direction and rate.

    They are what the filter adds to the plain run of the same round. With a baseline, they also are
    what the baseline adds to plain, and what the filter adds to the baseline.
    """
    rounds: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        rounds.setdefault(sample.round, {})[sample.variant] = sample
    of_rounds = list(rounds.values())

    def between(first: str, second: str) -> dict:
        return compared([(samples[first], samples[second]) for samples in of_rounds])

    out = between(PLAIN, FILTERED)
    for variant in (name for name in VARIANTS if name in of_rounds[0]):
        out[variant] = {
            field: round(statistics.median(getattr(samples[variant], field) for samples in of_rounds), 4)
            for field in ("answered", "p50_ms", "p99_ms", "cpu_us", "busy")
        }
    if BASELINE in of_rounds[0]:
        out["baseline_over_plain"] = between(PLAIN, BASELINE)
        out["filtered_over_baseline"] = between(BASELINE, FILTERED)
    return out


def summarize(samples: list[Sample], headline_rate: int) -> dict:
    """Returns all figures. The headline keys are those of the worse hop at `headline_rate`."""
    by: dict[str, dict[str, dict]] = {}
    for rate in sorted({sample.rate for sample in samples}, key=lambda rate: (rate == SATURATION, rate)):
        for direction in sorted({sample.direction for sample in samples}):
            chosen = [s for s in samples if (s.rate, s.direction) == (rate, direction)]
            name = "saturation" if rate == SATURATION else str(rate)
            by.setdefault(name, {})[direction] = of_direction(chosen)
    hops = by[str(headline_rate)].values()
    headline = {key: max(hop[key] for hop in hops) for key in ("added_p50_ms", "added_p99_ms", "cpu_ratio")}
    # Where a rate was not kept, the client waited for the processor, not the proxy. Its latencies
    # then say nothing about the proxy.
    kept = min((s.answered / s.rate for s in samples if s.rate != SATURATION), default=1.0)
    headline["rate_kept"] = round(kept, 4)
    return {**headline, "headline": f"the worse of the hops, at {headline_rate} requests/s", "rates": by}
