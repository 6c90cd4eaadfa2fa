"""Block bootstrap of what clients saw in the rounds of one policy. Pure.

Requests that are close in time share a queue, so they are not independent. A replicate therefore
draws whole blocks of a round's time, with replacement, as many as the round has (Künsch, The
jackknife and the bootstrap for general stationary observations, 1989). Rounds of several policies
that ran beside each other draw the same blocks, so changes of the load over time cancel in their
ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spillway_lab.report.round_samples import RoundSamples

DRAWS = 2000
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
LATENCIES = ("mean_ms", *QUANTILES)
# A round has this many blocks, unless they would be shorter than a second. In a queue at 90 %
# utilisation, more and shorter blocks have too little of what belongs together (ADR 52).
_BLOCKS = 10
_SHORTEST_BLOCK_S = 1.0
# Quantiles of replicates are among this many latencies at even ranks; the value itself is exact.
_LATENCIES = 4096


@dataclass(frozen=True)
class Statistic:
    """A figure of one policy, its replicates, and the same figure of each round alone."""

    value: float
    replicates: np.ndarray  # (draws,), of the same rounds with other blocks of their time
    rounds: np.ndarray  # (rounds,), in the order of their repetitions


def blocks_of(measured_s: float) -> int:
    """Returns into how many blocks the measured time of a round is cut."""
    return max(1, min(_BLOCKS, int(measured_s / _SHORTEST_BLOCK_S)))


@lru_cache(32)
def block_draws(blocks: int, seed: int, repetition: int, draws: int = DRAWS) -> np.ndarray:
    """Returns how often each replicate has each block of a repetition, shape (draws, blocks)."""
    random = np.random.default_rng([seed, repetition])
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=draws).astype(float)
    drawn.flags.writeable = False  # all callers share it
    return drawn


def statistics(
    rounds: Sequence[RoundSamples], counts: Sequence[np.ndarray], measured_s: float
) -> dict[str, Statistic]:
    """Returns mean, quantiles and share of failed requests of all rounds together.

    `rounds`: at least one, each with at least one request. `counts`: `block_draws` of each round.
    """
    latency, failed = [r.latency_ms.astype(float) for r in rounds], [~r.ok for r in rounds]
    # Blocks are numbered through all rounds, so that a replicate is one row of `drawn`.
    first = np.cumsum([0, *(each.shape[1] for each in counts)])
    numbered = zip(rounds, counts, first, strict=False)
    block = np.concatenate([_block(r, measured_s, each.shape[1]) + begin for r, each, begin in numbered])
    drawn = np.concatenate(list(counts), axis=1)
    found = {"mean_ms": _mean(latency, block, drawn), "failed_share": _mean(failed, block, drawn)}
    pooled = np.concatenate(latency)
    values, below = _ranked(pooled, block, drawn.shape[1])
    for name, quantile in QUANTILES.items():
        alone = np.array([at_quantile(each, quantile) for each in latency])
        replicates = values[_ranks(drawn, below, quantile)]
        found[name] = Statistic(at_quantile(pooled, quantile), replicates, alone)
    return found


def at_quantile(values: np.ndarray, quantile: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed."""
    return float(np.quantile(values, quantile, method="inverted_cdf"))


def _block(samples: RoundSamples, measured_s: float, blocks: int) -> np.ndarray:
    """Returns the block of each request. What was sent late counts in the last block."""
    return np.minimum((samples.at_s / measured_s * blocks).astype(int), blocks - 1)


def _mean(values: Sequence[np.ndarray], block: np.ndarray, drawn: np.ndarray) -> Statistic:
    pooled = np.concatenate(values)
    requests = drawn @ np.bincount(block, minlength=drawn.shape[1])
    sums = drawn @ np.bincount(block, weights=pooled, minlength=drawn.shape[1])
    # A replicate of rounds that are nearly idle may draw no request. It then adds no spread.
    replicates = np.divide(sums, requests, out=np.full(len(drawn), pooled.mean()), where=requests > 0)
    return Statistic(float(pooled.mean()), replicates, np.array([float(each.mean()) for each in values]))


def _ranked(latency: np.ndarray, block: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns latencies at even ranks, and how many requests of each block are at most that long.

    Shapes (ranks,) and (blocks, ranks). Latencies ascend, and the last one is the highest.
    """
    ordered = np.sort(latency)
    if len(ordered) > _LATENCIES:
        ordered = ordered[np.linspace(0, len(ordered) - 1, _LATENCIES).astype(int)]
    values = np.unique(ordered)
    cell = block * len(values) + np.searchsorted(values, latency)
    table = np.bincount(cell, minlength=blocks * len(values)).reshape(blocks, len(values))
    return values, np.cumsum(table, axis=1, dtype=float)


def _ranks(drawn: np.ndarray, below: np.ndarray, quantile: float) -> np.ndarray:
    """Returns the first rank that enough requests of each replicate are below, by bisection."""
    enough = quantile * (drawn @ below[:, -1]) * (1 - 1e-12)
    low, high = np.zeros(len(drawn), int), np.full(len(drawn), below.shape[1] - 1)
    while (low < high).any():
        middle = (low + high) // 2
        reached = np.einsum("db,bd->d", drawn, below[:, middle]) >= enough
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return high
