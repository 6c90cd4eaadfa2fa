"""Whether a class has two clear modes: two log-normal components against one, at equal load."""

from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.classes import sample
from spillway_streams.classes.options import Options

_STARTS = (0.15, 0.5, 0.85)
_ROUNDS = 80
_LEAST_SPREAD = 0.02  # of the logarithm, because clocks count in microseconds
_MIN_STRATUM = 10
_Parameters = tuple[float, float, float, float, float]  # share of the high one, means, spreads


@dataclass(frozen=True)
class Modes:
    """One or two modes of exclusive time.

    `high`: for each sample, the probability that it belongs to the slow mode.
    """

    clear: bool
    separation: float  # Ashman's D
    bic_gain: float
    valley: float  # lowest density between the modes over that of the lower mode
    low_ms: float
    high_ms: float
    high_share: float
    high: Floats


def find(ms: Floats, stratum: Ints, weight: Floats, options: Options) -> Modes:
    """Looks for two modes. `ms`, `stratum`, `weight`: shape (n,).

    Load affects all calls of a stratum alike, so the median of the stratum is subtracted.
    """
    logs = np.log(np.maximum(ms, 1e-3))
    residual, typical = _centred(logs, stratum), float(np.median(logs)) if len(logs) else 0.0
    if len(ms) < options.min_samples or np.ptp(residual) < _LEAST_SPREAD:
        return Modes(
            False, 0.0, 0.0, 1.0, float(np.exp(typical)), float(np.exp(typical)), 0.0, np.zeros(len(ms))
        )
    share = weight / weight.sum() * sample.effective(weight)
    best = max(
        (_expectation_maximisation(residual, share, start) for start in _STARTS), key=lambda fit: fit[0]
    )
    likelihood, (p, low, high, s_low, s_high), posterior = best
    n = share.sum()
    gain = 2 * (likelihood - _single_mode(residual, share)) - 3 * np.log(n)  # three additional parameters
    separation = np.sqrt(2) * (high - low) / np.hypot(s_low, s_high)
    valley = _valley(p, low, high, s_low, s_high)
    clear = (
        separation > options.min_separation
        and gain > options.min_bic_gain
        and options.min_mode_share < p < 1 - options.min_mode_share
        and valley < options.max_valley
    )
    times = np.exp(typical + low), np.exp(typical + high)
    return Modes(
        bool(clear),
        float(separation),
        float(gain),
        valley,
        float(times[0]),
        float(times[1]),
        float(p),
        posterior,
    )


def _centred(logs: Floats, stratum: Ints) -> Floats:
    """Subtracts the median of each stratum, or of all samples where a stratum is too small."""
    residual = logs - (np.median(logs) if len(logs) else 0.0)
    for number in np.unique(stratum):
        mine = stratum == number
        if mine.sum() >= _MIN_STRATUM:
            residual[mine] = logs[mine] - np.median(logs[mine])
    return residual


def _density(x: Floats, mean: float, spread: float) -> Floats:
    density: Floats = np.exp(-0.5 * ((x - mean) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    return density


def _single_mode(x: Floats, share: Floats) -> float:
    """Returns the log likelihood of one normal distribution."""
    mean = np.average(x, weights=share)
    spread = max(np.sqrt(np.average((x - mean) ** 2, weights=share)), _LEAST_SPREAD)
    return float((share * np.log(_density(x, mean, spread) + 1e-300)).sum())


def _expectation_maximisation(x: Floats, share: Floats, start: float) -> tuple[float, _Parameters, Floats]:
    """Fits two normal distributions.

    Returns the log likelihood, the parameters (share of the high one, means, spreads), and the
    posterior probability of the high one.
    """
    posterior = (x > np.quantile(x, start)).astype("f8")
    before = -np.inf
    for _ in range(_ROUNDS):
        parameters = _maximise(x, share, posterior)
        p, low, high, s_low, s_high = parameters
        upper, lower = p * _density(x, high, s_high), (1 - p) * _density(x, low, s_low)
        both = upper + lower + 1e-300
        posterior = upper / both
        likelihood = float((share * np.log(both)).sum())
        if likelihood - before < 1e-4:
            break
        before = likelihood
    if high < low:
        parameters, posterior = (1 - p, high, low, s_high, s_low), 1 - posterior
    return likelihood, parameters, posterior


def _maximise(x: Floats, share: Floats, posterior: Floats) -> _Parameters:
    found = []
    for part in (1 - posterior, posterior):
        mass = share * part
        total = max(mass.sum(), 1e-9)
        mean = (mass * x).sum() / total
        spread = np.sqrt((mass * (x - mean) ** 2).sum() / total)
        found.append((mean, max(spread, _LEAST_SPREAD)))
    p = float(np.clip((share * posterior).sum() / share.sum(), 1e-6, 1 - 1e-6))
    (low, s_low), (high, s_high) = found
    return p, low, high, s_low, s_high


def _valley(p: float, low: float, high: float, s_low: float, s_high: float) -> float:
    """Returns the lowest density between the modes over that of the lower mode.

    A skewed time is also fitted by two components, but without a valley between them: 1.
    """
    grid = np.linspace(low, high, 200)
    density = p * _density(grid, high, s_high) + (1 - p) * _density(grid, low, s_low)
    between = int(np.argmin(density))
    peak = min(density[: between + 1].max(), density[between:].max())
    return float(density[between] / peak)
