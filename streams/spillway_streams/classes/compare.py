"""Whether two classes behave alike: exclusive time at equal load, and the calls that they make.

Both answers have an effect size with confidence bounds. Millions of samples therefore do not make
every pair different, and few samples do not make every pair alike.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import stats

from spillway_streams.batches.arrays import Floats, Ints, Records
from spillway_streams.classes import sample
from spillway_streams.classes.memory import ClassMemory
from spillway_streams.classes.options import Options

ALIKE, DIFFERENT, UNSURE = "alike", "different", "unsure"
_CONFIDENCE = 0.99
_Z = float(stats.norm.ppf(_CONFIDENCE))
_KOLMOGOROV = float(stats.kstwobign.ppf(_CONFIDENCE))
_MIN_STRATUM = 5.0  # effective samples of each class
_SLOT_S = 30


@dataclass(frozen=True)
class Stratum:
    """The calls of one class at the same load: ms and weight, shape (n,)."""

    ms: Floats
    weight: Floats
    effective: float  # effective number of samples
    mean: float
    variance: float


@dataclass(frozen=True)
class Sampled:
    """The calls of a class that succeeded, and the calls that they made.

    `ms`, `stratum`, `weight`: shape (n,). `children`: callee -> (calls per request, its standard
    error).
    """

    ms: Floats
    stratum: Ints
    weight: Floats
    children: dict[int, tuple[float, float]]
    traces: int

    @cached_property
    def effective(self) -> float:
        return sample.effective(self.weight)

    @cached_property
    def strata(self) -> dict[int, Stratum]:
        """The strata with enough calls, by load. Cached: a class is compared with many others."""
        order = np.argsort(self.stratum, kind="stable")
        found, first = np.unique(self.stratum[order], return_index=True)
        groups = np.split(order, first[1:]) if len(found) else []
        made = {
            int(load): _stratum(self.ms[rows], self.weight[rows])
            for load, rows in zip(found, groups, strict=True)
        }
        return {load: stratum for load, stratum in made.items() if stratum.effective >= _MIN_STRATUM}


def _stratum(ms: Floats, weight: Floats) -> Stratum:
    mean = float(np.average(ms, weights=weight))
    variance = float(np.average((ms - mean) ** 2, weights=weight))
    return Stratum(ms, weight, sample.effective(weight), mean, variance)


@dataclass(frozen=True)
class Comparison:
    """Differences of two classes, each with its error and its p-value under equality."""

    # Largest difference of the distribution functions of exclusive time, over strata of load.
    distance: float
    distance_error: float
    statistic: float  # distance / distance_error: follows Kolmogorov's law if nothing differs
    p_value: float
    ratio: float  # of the mean exclusive times: second over first
    ratio_error: float  # standard error of its logarithm
    child_difference: float  # largest difference of calls per request
    child_error: float
    child_statistic: float
    child_p_value: float  # Bonferroni over callees
    samples: int  # effective number of the class with fewer samples

    def verdict(self, options: Options) -> str:
        """Returns ALIKE or DIFFERENT if the data show it, else UNSURE."""
        alike = (
            self.distance + _KOLMOGOROV * self.distance_error < options.max_distance
            and abs(np.log(self.ratio)) + _Z * self.ratio_error < np.log(options.max_ratio)
            and self.child_difference + _Z * self.child_error < options.max_child_difference
        )
        if alike:
            return ALIKE
        far = (self.distance > options.max_distance / 2 and self.p_value < options.alpha) or (
            self.child_difference > options.max_child_difference / 2 and self.child_p_value < options.alpha
        )
        return DIFFERENT if far else UNSURE

    def farness(self, options: Options) -> float:
        """Returns the largest effect in units of its allowed maximum; below 1 all are small."""
        return max(
            self.distance / options.max_distance,
            abs(float(np.log(self.ratio))) / float(np.log(options.max_ratio)),
            self.child_difference / options.max_child_difference,
        )


def sampled(memory: ClassMemory) -> Sampled:
    """Returns the samples of both generations."""
    parts, weights = [], []
    for generation in (memory.now, memory.before):
        rows = generation.calls.rows()
        parts.append(rows)
        weights.append(sample.weights(rows, generation.calls.threshold))
    rows, weight = np.concatenate(parts), np.concatenate(weights)
    good = ~rows["failed"]
    children, traces = _children(memory)
    return Sampled(
        rows["exclusive_ms"][good].astype("f8"), strata(rows)[good], weight[good], children, traces
    )


def pooled(members: list[Sampled]) -> Sampled:
    """Returns classes that are alike as one class, with the children of the largest one."""
    largest = max(members, key=lambda member: member.traces)
    return Sampled(
        np.concatenate([member.ms for member in members]),
        np.concatenate([member.stratum for member in members]),
        np.concatenate([member.weight for member in members]),
        largest.children,
        largest.traces,
    )


def strata(rows: Records) -> Ints:
    """Returns the stratum of each call: calls in one stratum had the same load.

    They were served in the same cluster with the same number of requests in flight, within a factor
    of 1.4. Where the proxy did not stamp that number, they were served in the same half minute.
    """
    inside = np.maximum(rows["in_flight"], 1.0)
    load = np.where(rows["in_flight"] > 0, np.round(2 * np.log2(inside)), 64 + rows["at"] // _SLOT_S)
    found: Ints = (rows["cluster"].astype("i8") << 40) | load.astype("i8")
    return found


def compare(first: Sampled, second: Sampled) -> Comparison:
    """Compares two classes over the strata that both have enough calls in."""
    shares = _shares(first, second)
    total = sum(shares.values())
    nothing = Comparison(
        distance=0.0, distance_error=np.inf, statistic=0.0, p_value=1.0, ratio=1.0, ratio_error=np.inf,
        child_difference=0.0, child_error=0.0, child_statistic=0.0, child_p_value=1.0,
        samples=int(min(first.effective, second.effective)),
    )  # fmt: skip
    if not total:
        return nothing
    distance = _distance(first, second, shares)
    scale = np.sqrt(total) + 0.12 + 0.11 / np.sqrt(total)  # Stephens 1970
    ratio, error = _ratio(first, second, shares)
    found = replace(
        nothing,
        distance=distance,
        distance_error=1 / scale,
        statistic=distance * scale,
        p_value=float(stats.kstwobign.sf(distance * scale)),
        ratio=ratio,
        ratio_error=error,
    )
    return _with_children(found, first, second)


def _shares(first: Sampled, second: Sampled) -> dict[int, float]:
    """Returns the harmonic size n m / (n + m) of each stratum that both have enough calls in."""
    shares = {}
    for load in sorted(first.strata.keys() & second.strata.keys()):
        n, m = first.strata[load].effective, second.strata[load].effective
        shares[load] = n * m / (n + m)
    return shares


def _mass(group: Sampled, shares: dict[int, float]) -> tuple[Floats, Floats]:
    """Returns times, and masses that sum to 1. The masses of a stratum sum to its share."""
    values, masses = [], []
    total = sum(shares.values())
    for load, share in shares.items():
        mine = group.strata[load]
        values.append(mine.ms)
        masses.append(mine.weight / mine.weight.sum() * (share / total))
    return np.concatenate(values), np.concatenate(masses)


def _distance(first: Sampled, second: Sampled, shares: dict[int, float]) -> float:
    """Returns sup |F - G| of the stratified distribution functions.

    With n m / (n + m) as shares, its variance is at most that of one two-sample comparison of their
    sum, because F (1 - F) is concave.
    """
    (x, p), (y, q) = _mass(first, shares), _mass(second, shares)
    values, masses = np.concatenate([x, y]), np.concatenate([p, -q])
    order = np.argsort(values, kind="stable")
    gap = np.cumsum(masses[order])
    last = np.append(np.diff(values[order]) > 0, True)  # ties count together
    return float(np.abs(gap[last]).max())


def _ratio(first: Sampled, second: Sampled, shares: dict[int, float]) -> tuple[float, float]:
    """Returns the ratio of the stratified means, and the standard error of its logarithm."""
    means, errors = [], []
    total = sum(shares.values())
    for group in (first, second):
        mean = variance = 0.0
        for load, share in shares.items():
            mine = group.strata[load]
            mean += share / total * mine.mean
            variance += (share / total) ** 2 * mine.variance / (mine.effective - 1)
        means.append(max(mean, 1e-6))
        errors.append(variance / means[-1] ** 2)
    return means[1] / means[0], float(np.sqrt(sum(errors)))


def _with_children(found: Comparison, first: Sampled, second: Sampled) -> Comparison:
    callees = first.children.keys() | second.children.keys()
    if not callees or not first.traces or not second.traces:
        return found
    nothing = (0.0, 0.0)
    worst = (0.0, 0.0)
    floor = 1 / np.array([first.traces, second.traces])  # what has never varied may still vary
    bound, strongest = -1.0, 0.0
    for callee in callees:
        (a, se_a), (b, se_b) = first.children.get(callee, nothing), second.children.get(callee, nothing)
        error = float(np.hypot(max(se_a, floor[0]), max(se_b, floor[1])))
        strongest = max(strongest, abs(a - b) / error)
        if abs(a - b) + _Z * error > bound:
            bound, worst = abs(a - b) + _Z * error, (abs(a - b), error)
    p_value = min(1.0, 2 * float(stats.norm.sf(strongest)) * len(callees))
    return replace(
        found,
        child_difference=worst[0],
        child_error=worst[1],
        child_statistic=strongest,
        child_p_value=p_value,
    )


def _children(memory: ClassMemory) -> tuple[dict[int, tuple[float, float]], int]:
    """Returns calls per request by callee, with standard errors, and the number of traces.

    They are ratios over traces whose calls and children are both in the sample.
    """
    requests, calls, traces = [], [], 0
    for generation in (memory.now, memory.before):
        limit = generation.both
        parents, children = generation.calls.rows(), generation.children.rows()
        parents, children = parents[parents["key"] < limit], children[children["key"] < limit]
        found, count = np.unique(parents["trace"], return_counts=True)
        known = np.isin(children["trace"], found)
        requests.append(count)
        calls.append((np.searchsorted(found, children["trace"][known]) + traces, children["callee"][known]))
        traces += len(found)
    if not traces:
        return {}, 0
    made = np.concatenate(requests).astype("f8")
    where, callee = (np.concatenate(column) for column in zip(*calls, strict=True))
    rates = {}
    for code in np.unique(callee):
        count = np.bincount(where[callee == code], minlength=traces)
        rate = float(count.sum() / made.sum())
        residual = count - rate * made
        rates[int(code)] = (rate, float(np.sqrt((residual**2).sum()) / made.sum()))
    return rates, traces
