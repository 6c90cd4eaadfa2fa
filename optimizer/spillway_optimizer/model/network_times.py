"""Estimates what a round trip takes now, from measurements and from the declared time. Pure.

The estimate is the posterior mean of normal values, each weighted by its precision (1 / variance):
the declared time, what is remembered, and the newest measurement. A network time drifts like a
random walk, so the variance of a measurement grows in proportion to its age. It follows that a slow
link stays slow for as long as anything is remembered of it. A few slow calls do not make a link
slow. The estimate returns to the declared time over hours, not at once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from spillway_optimizer.inputs.telemetry import NetworkRow

_SYSTEMATIC = 0.05  # relative: the least error of a remembered mean
_DRIFT_PER_SQRT_HOUR = 0.2  # relative
_PRIOR = 1.0  # standard error of a declared time, relative
_LEAST_PRIOR_MS = 5.0
_CONTRADICTS = 3.0  # standard errors; a remembered mean that is further away is outdated
_WINDOW_S = 30.0  # seconds that a measurement covers: graph_window_s of streams
_LEAST_VARIANCE = 1e-6
Pair = tuple[str, str]


@dataclass(frozen=True)
class Measured:
    """A mean of `samples` independent samples, over a window that ends at Unix second `at`.

    Samples are calls, or spans where traces are sampled.
    """

    at: float
    mean_ms: float
    samples: float

    def worth(self, spans_per_call: float) -> "Measured":
        """Returns the same mean with its samples converted from calls to spans."""
        return replace(self, samples=self.samples * spans_per_call)

    def variance(self, about_ms: float) -> float:
        """Returns the variance of the mean, in ms².

        The standard deviation of calls is assumed to equal their mean, or the expected `about_ms`
        if that is longer.
        """
        return max(max(self.mean_ms, about_ms) ** 2 / self.samples, _LEAST_VARIANCE)


@dataclass(frozen=True)
class Estimate:
    """What a round trip takes.

    `noise_ms` is the part of the standard error that other samples would have changed. A declared
    time has none. `age_s` is the age of the measurement: 0.0 if it is current, infinite if there is
    none.
    """

    ms: float
    standard_error_ms: float
    noise_ms: float
    age_s: float

    @property
    def origin(self) -> str:
        """'measured', 'remembered' or 'declared'."""
        if self.age_s == 0.0:
            return "measured"
        return "remembered" if self.age_s < math.inf else "declared"


def remembered(rows: Iterable[NetworkRow], fresh: Mapping[Pair, Measured]) -> dict[Pair, Measured]:
    """Returns the mean of each pair's rows, weighted by their samples.

    The rows are the newest of each pair. Rows that share samples with a fresh measurement are left
    out. The windows of rows overlap, so all rows of a pair count as a single window.
    """
    by_pair: dict[Pair, list[Measured]] = defaultdict(list)
    for row in rows:
        pair = row.source_cluster, row.destination_cluster
        is_apart = pair not in fresh or row.window_end <= fresh[pair].at - _WINDOW_S
        if row.samples > 0 and row.mean_ms >= 0 and is_apart:
            by_pair[pair].append(Measured(row.window_end, row.mean_ms, row.samples))
    return {pair: _together(measurements) for pair, measurements in by_pair.items()}


def _together(measurements: list[Measured]) -> Measured:
    samples = sum(m.samples for m in measurements)
    mean_ms = sum(m.mean_ms * m.samples for m in measurements) / samples
    return Measured(max(m.at for m in measurements), mean_ms, samples / len(measurements))


@dataclass(frozen=True)
class Mean:
    """A mean of what was measured.

    `noise` is the variance that chance alone explains. The precision also accounts for drift and
    systematic errors, which are the same at the next solve.
    """

    ms: float = 0.0
    precision: float = 0.0  # 0: nothing was measured
    noise: float = 0.0


def measured(fresh: Measured | None, memory: Measured | None, about_ms: float, now: float) -> Mean:
    """Combines a fresh and a remembered measurement.

    What is remembered does not count where the fresh measurement contradicts it.
    """
    only_fresh, new = Mean(), 0.0
    if fresh is not None:
        new = fresh.variance(about_ms)
        only_fresh = Mean(fresh.mean_ms, 1 / new, new)
    if memory is None:
        return only_fresh
    chance = memory.variance(about_ms)
    drift = _DRIFT_PER_SQRT_HOUR**2 * max(now - memory.at, 0.0) / 3600
    old = max(chance, (_SYSTEMATIC * memory.mean_ms) ** 2) + drift * memory.mean_ms**2
    if fresh is None:
        return Mean(memory.mean_ms, 1 / old, chance)
    if abs(fresh.mean_ms - memory.mean_ms) > _CONTRADICTS * math.sqrt(new + old):
        return only_fresh
    precision = 1 / new + 1 / old
    ms = (fresh.mean_ms / new + memory.mean_ms / old) / precision
    return Mean(ms, precision, (1 / new + chance / old**2) / precision**2)


def estimate(
    declared_ms: float,
    fresh: Measured | None,
    memory: Measured | None,
    now: float,
    declared_noise_ms: float = 0.0,
) -> Estimate:
    """Returns the posterior of the prior N(declared, prior²) and the measurements.

    `declared_noise_ms` is the noise that the declared time has from other measurements.
    """
    prior = 1 / max(_PRIOR * declared_ms, _LEAST_PRIOR_MS) ** 2
    mean = measured(fresh, memory, declared_ms, now)
    whole = prior + mean.precision
    noise_ms = math.hypot(mean.precision * math.sqrt(mean.noise), prior * declared_noise_ms) / whole
    age_s = math.inf if memory is None else max(now - memory.at, 1e-9)
    return Estimate(
        (prior * declared_ms + mean.precision * mean.ms) / whole,
        1 / math.sqrt(whole),
        noise_ms,
        0.0 if fresh is not None else age_s,
    )


def note(estimates: Mapping[Pair, Estimate], most: int = 5) -> tuple[str, ...]:
    """Returns a line about the pairs that are remembered but not measured now.

    It names up to `most` pairs, the least certain first. The result is empty if there are none.
    """
    found = [(pair, e) for pair, e in estimates.items() if e.origin == "remembered"]
    if not found:
        return ()
    found.sort(key=lambda item: (-item[1].standard_error_ms, item[0]))
    pairs = [
        f"{here}>{there} {e.ms:.1f} ± {e.standard_error_ms:.1f} ms of {math.ceil(e.age_s / 60)} min ago"
        for (here, there), e in found[:most]
    ]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return (f"network times remembered, not measured now: {', '.join(pairs)}{more}",)
