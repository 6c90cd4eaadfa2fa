"""Compares curves of a service's classes with curves that share a parameter, on simulated queues.

    python streams/accuracy/ratios.py [--seeds N] [--json]

The optimizer's problem is convex where a / weight is the same for all classes of a service. This
asks whether curves with such a shared ratio predict the latency better than curves fitted class by
class, where the errors of the fits cannot tell the ratios apart.

    apart         each class has its own a
    ratio         a is weight times the mean ratio, if Cochran's Q does not tell the ratios apart
    true weights  the same, with the true weights instead of the learned ones
    joint         the same as `ratio`, with the correlation of the classes' errors, which fits class
                  by class do not show; it is that of all seeds
    same a        a is the mean of all classes' a, if Cochran's Q does not tell them apart

Means are weighted by inverse variances. b moves along the fit's correlation with a. A service with
a class that is not fitted yet (prior) shares nothing. Errors are root mean squares, over the
histories in which a model shares, of the relative error of the predicted latency. In brackets are
those of `apart` in the same histories, and by how many standard errors the mean square of the
model is above that of `apart`. Predictions of classes are compared at the true utilisation.
Those of the service are its mean latency, at the utilisation that the optimizer computes from
rates, weights and capacity, for the mix of the fit and for another one.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from accuracy import queues, simulated
from accuracy.simulated import Pod
from scipy.stats import chi2
from spillway_streams.model.modelling import CAPACITIES, CURVES, Modeller, Options

SIGNIFICANT = 0.05
LOADS = (0.3, 0.5, 0.7, 0.85)
OTHER_MIX = (0.8, 0.2)
_HIGHEST = 0.97  # utilisation at which a prediction for the service is made at most
_TRUE_ARRIVALS = 400_000
QUEUES = {
    "first in, first out, 1 worker": Pod(1, (10.0, 30.0), (0.5, 0.5)),
    "first in, first out, 4 workers": Pod(4, (10.0, 30.0), (0.5, 0.5)),
    "processor sharing": Pod(1, (10.0, 30.0), (0.5, 0.5), sharing=True),
}
HISTORIES = {
    "10 to 80 %": np.repeat(np.arange(0.1, 0.9, 0.1), 40),
    "40 to 60 %": 0.5 + 0.1 * np.sin(np.arange(320) / 20),
}


@dataclass(frozen=True)
class Line:
    """One class: a, b, their standard errors and correlation, and the class's weight."""

    a: float
    b: float
    a_se: float
    b_se: float
    correlation: float
    weight: float

    def __call__(self, u: float) -> float:
        return self.a / (1 - u) + self.b

    def moved(self, a: float) -> "Line":
        """Returns the curve with another a, and with the b that is expected for it."""
        slope = self.correlation * self.b_se / self.a_se if self.a_se > 0 else 0.0
        return replace(self, a=a, b=max(self.b + slope * (a - self.a), -a))


@dataclass(frozen=True)
class Learned:
    """The curves of a service's classes, and its capacity in requests of the baseline class."""

    lines: tuple[Line, ...]
    capacity_rps: float

    def mean_ms(self, rates: np.ndarray) -> float:
        """Returns the mean latency that the optimizer predicts for these requests per second."""
        load = float(rates @ [line.weight for line in self.lines]) / self.capacity_rps
        return float(rates @ [line(min(load, _HIGHEST)) for line in self.lines]) / float(rates.sum())


@dataclass(frozen=True)
class Row:
    """Errors in one case.

    `of`: 'short', 'long', 'same mix' or 'other mix'. `shared`: number of the histories in which a
    parameter was shared. The errors are of those, of the model and of curves fitted class by class.
    `worse`: the difference of their mean squares in standard errors; above 0: the model is worse.
    All three are NaN if nothing was shared. `error_all` is of all `fits` histories.
    """

    queue: str
    history: str
    model: str
    of: str
    utilisation: float
    fits: int
    error_all: float
    shared: int
    error: float
    error_apart: float
    worse: float


def own_weights(lines: Sequence[Line], _: Pod) -> list[float]:
    return [line.weight for line in lines]


def true_weights(_: Sequence[Line], pod: Pod) -> list[float]:
    return list(pod.service_ms)


def ones(lines: Sequence[Line], _: Pod) -> list[float]:
    return [1.0] * len(lines)


@dataclass(frozen=True)
class Model:
    """What classes share: a divided by `units`. `joint`: the errors' correlation is known."""

    units: Callable[[Sequence[Line], Pod], list[float]]
    joint: bool = False

    def shared(self, lines: Sequence[Line], pod: Pod, correlation: float) -> tuple[Line, ...] | None:
        """Returns the curves that share a parameter; None where Q shows that classes differ."""
        units = self.units(lines, pod)
        mean = together(lines, units, correlation if self.joint else 0.0)
        if mean is None:
            return None
        return tuple(line.moved(mean * unit) for line, unit in zip(lines, units, strict=True))


MODELS = {
    "apart": None,
    "ratio": Model(own_weights),
    "true weights": Model(true_weights),
    "joint": Model(own_weights, joint=True),
    "same a": Model(ones),
}


def together(lines: Sequence[Line], units: Sequence[float], correlation: float) -> float | None:
    """Returns the inverse-variance mean of a / unit; None where Q shows that classes differ.

    `correlation`: of the errors of any two classes. None also where a class is not fitted.
    """
    unit = np.asarray(units)
    values = np.array([line.a for line in lines]) / unit
    errors = np.array([line.a_se for line in lines]) / unit
    if np.isnan([line.correlation for line in lines]).any():
        return None
    correlations = np.full((len(lines), len(lines)), correlation)
    np.fill_diagonal(correlations, 1.0)
    precision = np.linalg.inv(correlations * np.outer(errors, errors))
    mean = float(precision.sum(axis=0) @ values / precision.sum())
    q = float((values - mean) @ precision @ (values - mean))
    return mean if q <= chi2.ppf(1 - SIGNIFICANT, len(lines) - 1) else None


def learned(pod: Pod, history: np.ndarray, seed: int) -> Learned:
    """Returns what the job `curves` learns from this history of a pod."""
    observed = simulated.observe(pod, history, np.random.default_rng(seed))
    curves, capacities = Modeller(Options()).fit(*simulated.tables(observed), 0)
    columns = ("a_ms", "b_ms", "a_se_ms", "b_se_ms", "ab_correlation", "norm_weight")
    lines = tuple(Line(*(row[CURVES.index(column)] for column in columns)) for row in curves)
    return Learned(lines, capacities[0][CAPACITIES.index("capacity_rps")])


def true_ms(pod: Pod, shares: Sequence[float], u: float) -> np.ndarray:
    """Returns the mean latency of each class at utilisation u in this mix.

    It is exact for processor sharing, and for one worker (Pollaczek and Khinchine). For several
    workers it is that of a long simulation.
    """
    own, share = np.asarray(pod.service_ms), np.asarray(shares)
    if pod.sharing:
        return own / (1 - u)
    if pod.workers == 1:
        remaining = float(share @ own**2) / float(share @ own)  # exponential: E[S^2] = 2 E[S]^2
        return own + remaining * u / (1 - u)
    random = np.random.default_rng(1)
    mean_s = float(share @ own) / 1000
    at = np.cumsum(random.exponential(mean_s / (u * pod.workers), _TRUE_ARRIVALS))
    service = random.exponential(own[random.choice(len(own), len(at), p=share)] / 1000)
    return own + 1000 * float(queues.waits(at, service, pod.workers).mean())


def rows(seeds: int) -> Iterator[Row]:
    """Yields the errors of every case."""
    for queue, pod in QUEUES.items():
        true = {(mix, u): true_ms(pod, mix, u) for mix in (tuple(pod.shares), OTHER_MIX) for u in LOADS}
        for history, load in HISTORIES.items():
            found = [learned(pod, load, seed) for seed in range(seeds)]
            correlation = _correlation(found)
            apart = [_errors(pod, one, true) for one in found]
            for name, model in MODELS.items():
                shared = [model and model.shared(one.lines, pod, correlation) for one in found]
                errors = [
                    _errors(pod, replace(one, lines=lines), true) if lines else before
                    for one, lines, before in zip(found, shared, apart, strict=True)
                ]
                which = [lines is not None for lines in shared]
                for of, u in apart[0]:
                    each, before = (np.array([e[of, u] for e in some]) for some in (errors, apart))
                    yield Row(
                        queue, history, name, of, u, seeds, _rms(each), sum(which),
                        _rms(each[which]), _rms(before[which]), _worse(each[which], before[which]),
                    )  # fmt: skip


def _correlation(found: Sequence[Learned]) -> float:
    """Returns the mean correlation of a of any two classes over the fits, at most 0.99."""
    a = np.array([[line.a for line in one.lines] for one in found])
    pairs = np.corrcoef(a.T)[np.triu_indices(a.shape[1], 1)]
    return min(float(pairs.mean()), 0.99)


def _errors(pod: Pod, found: Learned, true: dict) -> dict[tuple[str, float], float]:
    """Returns the relative errors of one fit, by what is predicted and utilisation."""
    errors = {}
    for u in LOADS:
        for k, name in enumerate(("short", "long")):
            expected = true[tuple(pod.shares), u][k]
            errors[name, u] = found.lines[k](u) / expected - 1
        for name, mix in (("same mix", tuple(pod.shares)), ("other mix", OTHER_MIX)):
            share = np.asarray(mix)
            rps = u * pod.workers / (float(share @ pod.service_ms) / 1000)
            errors[name, u] = found.mean_ms(rps * share) / float(share @ true[mix, u]) - 1
    return errors


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan")


def _worse(errors: np.ndarray, before: np.ndarray) -> float:
    """Returns the mean difference of squared errors in units of its standard error."""
    difference = errors**2 - before**2
    if len(difference) < 2 or not difference.std():
        return float("nan")
    return float(difference.mean() / difference.std(ddof=1) * np.sqrt(len(difference)))


def table(found: Sequence[Row]) -> str:
    """Returns the rows as a text table, one line for each case, model and thing predicted."""
    head = f"{'queue':<31} {'seen':<11} {'model':<13} {'shared':>6} {'of':<10}"
    head += "".join(f" {'at ' + str(u):<22}" for u in LOADS)
    lines = [head, "-" * len(head)]
    for first in found:
        if first.utilisation != LOADS[0]:
            continue
        key = (first.queue, first.history, first.model, first.of)
        same = [r for r in found if (r.queue, r.history, r.model, r.of) == key]
        line = f"{first.queue:<31} {first.history:<11} {first.model:<13} {first.shared:>6} {first.of:<10}"
        if first.model == "apart":
            line += "".join(f" {r.error_all:6.1%}" + " " * 16 for r in same)
        elif first.shared:
            line += "".join(f" {r.error:6.1%} ({r.error_apart:6.1%},{r.worse:+5.1f})" for r in same)
        lines.append(line.rstrip())
    return "\n".join(lines)


def summary(found: Sequence[Row]) -> dict[str, float]:
    """Returns the median over all cases of a model's error over that of `apart`, by model.

    It is NaN for a model that shared nothing.
    """
    errors = {
        name: [r.error / r.error_apart for r in found if r.model == name and r.shared] for name in MODELS
    }
    return {
        name: round(float(np.median(some)), 3) if some else math.nan
        for name, some in errors.items()
        if name != "apart"
    }


def as_json(document: Mapping[str, Any]) -> str:
    """Returns the document as JSON on one line, with null for NaN, which JSON does not have."""
    return json.dumps(_plain(document), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=40, metavar="N", help="histories of each queue")
    parser.add_argument("--json", action="store_true", help="only the JSON line, with every row")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds: {arguments.seeds}, must be at least 2: errors are compared over histories")
    found = list(rows(arguments.seeds))
    if arguments.json:
        print(as_json(summary(found) | {"rows": [asdict(row) for row in found]}))
    else:
        print(f"relative error of the predicted latency\n\n{table(found)}\n\n{as_json(summary(found))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
