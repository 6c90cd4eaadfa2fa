"""What a round trip takes now, from what was measured of it and when, and from what the topology declares. Pure.

A network time drifts like a random walk: a measurement that is a seconds old has a variance that grows with a. It is
blended with the declared time, the prior, by their precisions. So a slow link stays slow for as long as anything is
remembered of it, and the estimate returns to the declared time over hours, not at once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.telemetry import NetworkRow

LEAST_SAMPLES = 5
_MEASURED = 0.05  # standard error of a remembered mean when it was measured, relative
_DRIFT_PER_SQRT_HOUR = 0.2  # relative
_PRIOR = 1.0  # standard error of a declared time, relative
_LEAST_PRIOR_MS = 5.0
Pair = tuple[str, str]


@dataclass(frozen=True)
class Remembered:
    """The last that was measured of a pair, at Unix second `at`."""

    at: float
    mean_ms: float


@dataclass(frozen=True)
class Estimate:
    """`age_s`: of the measurement; 0.0 when it is of now, infinite when there is none."""

    ms: float
    standard_error_ms: float
    age_s: float

    @property
    def origin(self) -> str:
        if self.age_s == 0.0:
            return "measured"
        return "remembered" if self.age_s < math.inf else "declared"


def remembered(rows: Iterable[NetworkRow]) -> dict[Pair, Remembered]:
    """Of each pair the mean of its rows, which are its newest, by their samples."""
    by_pair: dict[Pair, list[NetworkRow]] = defaultdict(list)
    for row in rows:
        if row.samples >= LEAST_SAMPLES and row.mean_ms >= 0:
            by_pair[row.source_cluster, row.destination_cluster].append(row)
    return {
        pair: Remembered(
            max(row.window_end for row in own),
            sum(row.mean_ms * row.samples for row in own) / sum(row.samples for row in own),
        )
        for pair, own in by_pair.items()
    }


def measured(mean_ms: float, samples: float) -> Estimate:
    return Estimate(mean_ms, mean_ms / math.sqrt(samples), 0.0)


def blended(declared_ms: float, memory: Remembered | None, now: float) -> Estimate:
    """The posterior of the prior N(declared, prior²) and what is remembered."""
    prior = max(_PRIOR * declared_ms, _LEAST_PRIOR_MS) ** 2
    if memory is None:
        return Estimate(declared_ms, math.sqrt(prior), math.inf)
    age = max(now - memory.at, 0.0)
    relative = _MEASURED**2 + _DRIFT_PER_SQRT_HOUR**2 * age / 3600
    variance = max(relative * memory.mean_ms**2, 1e-9)
    weight = prior / (prior + variance)
    ms = weight * memory.mean_ms + (1 - weight) * declared_ms
    return Estimate(ms, math.sqrt(weight * variance), max(age, 1e-9))


def note(estimates: Mapping[Pair, Estimate], most: int = 5) -> tuple[str, ...]:
    """One line about the pairs that are not measured now but remembered, in order of their uncertainty."""
    found = [(pair, e) for pair, e in estimates.items() if e.origin == "remembered"]
    if not found:
        return ()
    found.sort(key=lambda item: (-item[1].standard_error_ms, item[0]))
    said = [
        f"{here}>{there} {e.ms:.1f} ± {e.standard_error_ms:.1f} ms of {math.ceil(e.age_s / 60)} min ago"
        for (here, there), e in found[:most]
    ]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return (f"network times remembered, not measured now: {', '.join(said)}{more}",)
