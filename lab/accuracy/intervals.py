"""How often intervals of the report contain the true value, by ways to make them.

    python lab/accuracy/intervals.py [--trials 200] [--rounds 3]

A trial has rounds of 60 s with 90 requests/s. The true mean and p99 are known: requests are
independent, or those of an M/M/1 queue at 90 % utilisation, whose time in the system is exponential
with mean 1 / (service rate - arrival rate). Rounds are alike, or differ by 5 %. The last line is
JSON: per situation, way and figure the share of trials whose interval contains the true value, and
the median width of the interval, relative to the true value.
"""

import argparse
import json
from collections.abc import Callable, Iterator

import numpy as np
from spillway_lab.report import resampling, statistics
from spillway_lab.report.resampling import Statistic
from spillway_lab.report.round_samples import RoundSamples

MEASURED_S, ARRIVALS, SERVED = 60.0, 90.0, 100.0
MEAN_MS = 1000 / (SERVED - ARRIVALS)
TRUE = {"mean_ms": MEAN_MS, "p99_ms": MEAN_MS * np.log(100)}
Bounds = tuple[float, float]


def independent(random: np.random.Generator, arrived: np.ndarray) -> np.ndarray:
    return random.exponential(MEAN_MS, len(arrived))


def queue(random: np.random.Generator, arrived: np.ndarray) -> np.ndarray:
    """Returns the times in an M/M/1 system in ms, which is in its steady state from the start."""
    before = np.cumsum(random.exponential(1 / ARRIVALS, 20_000))
    at = np.concatenate([before - before[-1], arrived])
    service = random.exponential(1 / SERVED, len(at))
    # Lindley's recursion: what waits is the highest sum of service less arrivals since a moment.
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - np.diff(at))])
    waited = walk - np.minimum.accumulate(walk)
    return 1000 * (waited + service)[len(before) :]


def rounds(random: np.random.Generator, latency: Callable, spread: float, count: int) -> list[RoundSamples]:
    found = []
    for _ in range(count):
        arrived = np.cumsum(random.exponential(1 / ARRIVALS, int(2 * ARRIVALS * MEASURED_S)))
        arrived = arrived[arrived < MEASURED_S]
        ms = latency(random, arrived) * np.exp(random.normal(0, spread))
        nothing = np.zeros(len(ms), np.uint8)
        found.append(RoundSamples(arrived, ms, np.ones(len(ms), bool), nothing, nothing))
    return found


def drawn(measured: list[RoundSamples], blocks: int) -> dict[str, Statistic]:
    counts = [resampling.block_draws(blocks, 1, number) for number in range(len(measured))]
    return resampling.statistics(measured, counts, MEASURED_S)


def percentiles(values: np.ndarray) -> Bounds:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def logarithms(found: Statistic) -> Statistic:
    return Statistic(float(np.log(found.value)), np.log(found.replicates), np.log(found.rounds))


def chosen(found: Statistic) -> Bounds:
    bounds = statistics._interval(logarithms(found))
    assert bounds is not None, "there are two rounds at least"
    return float(np.exp(bounds[0])), float(np.exp(bounds[1]))


def by_rounds_alone(found: Statistic) -> Bounds:
    """Student's t of the rounds' own figures."""
    logs = np.log(found.rounds)
    t = np.quantile(statistics._student(len(logs) - 1), 0.975)
    half = t * logs.std(ddof=1) / np.sqrt(len(logs))
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


def resampled_rounds(found: Statistic, random: np.random.Generator) -> Bounds:
    """Whole rounds with replacement, and blocks within them: approximated on the logarithm."""
    logs = np.log(found.rounds)
    again = random.choice(logs, (len(found.replicates), len(logs))).mean(axis=1)
    return percentiles(np.exp(np.log(found.replicates) + again - logs.mean()))


def ways(measured: list[RoundSamples], random: np.random.Generator) -> Iterator[tuple[str, str, Bounds]]:
    """Yields the way, the figure and its bounds."""
    cut = {blocks: drawn(measured, blocks) for blocks in (resampling.blocks_of(MEASURED_S), 30, 60)}
    usual = cut[resampling.blocks_of(MEASURED_S)]
    for name in TRUE:
        for blocks, found in cut.items():
            yield f"chosen, {blocks} blocks a round", name, chosen(found[name])
        for blocks, found in cut.items():
            yield f"{blocks} blocks a round alone", name, percentiles(found[name].replicates)
        yield "rounds and blocks with replacement", name, resampled_rounds(usual[name], random)
        yield "rounds alone, Student's t", name, by_rounds_alone(usual[name])


def measure(latency: Callable, spread: float, trials: int, count: int) -> dict[str, dict[str, list[float]]]:
    """Returns by way and figure: coverage, and median relative width."""
    seen: dict[tuple[str, str], list[tuple[bool, float]]] = {}
    for trial in range(trials):
        random = np.random.default_rng([11, trial])
        for way, name, (low, high) in ways(rounds(random, latency, spread, count), random):
            inside = low <= TRUE[name] <= high
            seen.setdefault((way, name), []).append((inside, (high - low) / TRUE[name]))
    found: dict[str, dict[str, list[float]]] = {}
    for (way, name), values in seen.items():
        inside, widths = zip(*values, strict=True)
        found.setdefault(way, {})[name] = [
            round(float(np.mean(inside)), 3),
            round(float(np.median(widths)), 3),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    result = {}
    for situation, latency in (("independent", independent), ("queue", queue)):
        for spread in (0.0, 0.05):
            name = f"{situation}, rounds {'alike' if not spread else 'differ by 5 %'}"
            result[name] = measure(latency, spread, arguments.trials, arguments.rounds)
            print(f"\n{name}: contains the true value, and width")
            for way, by in result[name].items():
                cells = "   ".join(
                    f"{key[:-3]:>5} {inside:6.1%} {width:6.1%}" for key, (inside, width) in by.items()
                )
                print(f"  {way:<36}{cells}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
