"""A pod's capacity from its latency, where no CPU use is reported. Pure.

In a queue of c workers, a request waits in proportion to u^(sqrt(2 (c + 1)) - 1) / (1 - u)
(Sakasegawa 1977). The queue is first in, first out, so classes that share it wait alike and differ
in their own time only. The utilisation of the busiest seconds and the number of workers are
unknown. Every pair of a grid is therefore fitted, and the answer is their mean, weighted by how
well each pair explains the data. The scale of the waits is a third such unknown; the grid is
centred on that of an M/M/c queue whose service time is the requests' own time. A form with c = 1
alone would put the capacity of a pod with many workers too low, because its latency stays flat for
longer and then rises faster.
"""

from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.capacity.capacity import MIN_SECONDS, MIN_SPREAD, Capacity
from spillway_streams.curves import fit
from spillway_streams.curves.buckets import BLOCK_S
from spillway_streams.curves.fit import Points
from spillway_streams.load.rates import WIDTHS, moving_mean

WORKERS = (1, 2, 4, 8, 16)
BUSIEST = np.linspace(0.2, 0.985, 158)  # utilisation of the busiest bin: all equally likely
# That no busiest bin is less busy is an assumption. These exclude a capacity only by the data.
QUIETER = np.linspace(0.02, 0.2, 18, endpoint=False)
FACTOR_SD = 0.7  # standard deviation of the logarithm of FACTORS
# Waits in units of those of an M/M/c queue; 0.5 if all requests take the same time.
FACTORS = np.exp(np.linspace(-2, 2, 21) * FACTOR_SD)
REFUSING = 0.05  # share of failed calls above which a second is not that of a queue in steady state
MODEL_ERROR = 0.01  # relative: this form is closer to a queue than that of fit.py
# Likelihood over that of the best utilisation, below which a utilisation is excluded (2.5 %, one
# side).
EXCLUDED = float(np.exp(-(1.96**2) / 2))
_BINS = 12
_REQUESTS = 50  # in the widest window at the highest rate: with fewer, no capacity is ruled out
_WEAK = 0.1  # standard deviation of the busiest bin's utilisation: above, the answer is weak


@dataclass(frozen=True)
class _Bins:
    """Rate per bin (n,); mean latency and its weight, both (n, classes)."""

    rate: Floats
    latency: Floats
    weight: Floats


def from_latency(
    at: Ints,
    rate: Floats,
    served: Floats,
    failed: Floats,
    latency: Floats,
    samples: Floats,
) -> Capacity | None:
    """Returns the capacity from latency; None when the rates are too similar to determine it.

    Per second `at` (n,): `rate` that arrives at one pod and rate `served` by it (baseline class),
    and the share `failed`. Per class (n, classes): `latency`, the mean exclusive time (ms), and
    `samples`.
    """
    share = moving_mean(at, failed)
    # Some services always answer a part of their requests with errors: that is not overload.
    refusing = share > REFUSING + 2 * np.percentile(share, 10) if len(share) else share > 0
    found = _refused(rate, served, refusing, latency, samples)
    if found:
        return found
    good = (samples.sum(axis=1) > 0) & (rate > 0) & ~refusing
    at, rate, latency, samples = at[good], rate[good], latency[good], samples[good]
    if len(rate) < MIN_SECONDS:
        return None
    low, high = np.percentile(rate, [5, 95])
    if high - low < MIN_SPREAD * high:
        return None
    bins = _binned(at, rate, latency, samples)
    if len(bins.rate) < 3:
        return None
    u, sd, least = _busiest(bins)
    top = float(bins.rate.max())
    reason = f"latency at {low:.1f} to {high:.1f} rps, the highest {u:.0%} +/- {sd:.0%} busy"
    weak = sd > _WEAK
    reason += "; the evidence is weak" if weak else ""
    # Rates of a quiet service are off by chance, and its latency is that of few requests, so no
    # capacity is excluded.
    high = top / least if least > 0 and top * WIDTHS[-1] >= _REQUESTS else np.inf
    return Capacity(top / u, "curve", reason, se=top / u * sd / u, high=high, evidence="latency", weak=weak)


def _refused(
    rate: Floats, served: Floats, refusing: Bools, latency: Floats, samples: Floats
) -> Capacity | None:
    """Returns the rate served while requests are refused; None when that is not a limit.

    It is a limit if it is about the highest rate ever served, more arrived, and latency has risen.
    Errors without these signs are of another kind and occur at any load.
    """
    if refusing.sum() < MIN_SECONDS or (~refusing).sum() < MIN_SECONDS:
        return None
    limit = float(np.median(served[refusing]))
    mean_latency = (latency * samples).sum(axis=1) / np.maximum(samples.sum(axis=1), 1e-12)
    calm, strained = mean_latency[~refusing & (mean_latency > 0)], mean_latency[refusing & (mean_latency > 0)]
    if not len(calm) or not len(strained) or np.median(strained) < 2 * np.percentile(calm, 25):
        return None
    if np.median(rate[refusing]) < 1.05 * limit or limit < 0.95 * np.percentile(served[~refusing], 95):
        return None
    reason = f"the rate served in {int(refusing.sum())} s in which requests were refused"
    spread = float(np.std(served[refusing])) / np.sqrt(refusing.sum() / WIDTHS[0])
    return Capacity(limit, "curve", reason, se=spread, evidence="refusals")


def _binned(at: Ints, rate: Floats, latency: Floats, samples: Floats) -> _Bins:
    """Bins of equally many seconds.

    Weights are as in fit.py. The stretch there is here the latency over that of the quietest bins.
    """
    edges = np.unique(np.quantile(rate, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins, n = np.searchsorted(edges, rate, side="right"), len(edges) + 1
    seconds = np.bincount(bins, minlength=n)
    blocks, block = np.unique(at // BLOCK_S, return_inverse=True)
    cells = np.stack([
        [np.bincount(block * n + bins, term, len(blocks) * n) for term in (s, s * y)]
        for s, y in zip(samples.T, latency.T, strict=True)
    ]).reshape(samples.shape[1], 2, len(blocks), n)  # fmt: skip
    count, total = np.moveaxis(cells.sum(axis=2), 0, 2)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    weight = np.zeros_like(mean)
    for k in range(samples.shape[1]):
        seen = count[:, k] > 0
        if seen.any():
            y = mean[seen, k]
            quiet = max(float(np.sort(y)[: max(len(y) // 4, 1)].mean()), 1e-9)
            block_n, sums = cells[k][:, :, seen]
            points = Points(
                np.maximum(y / quiet, 1), y, 0 * y, count[seen, k], seconds[seen], block_n, block_n, sums
            )
            variance = fit.scatter(points, y) + y**2 / count[seen, k] + (MODEL_ERROR * y) ** 2
            weight[seen, k] = 1 / np.maximum(variance, 1e-18)
    # Classes of one second were in the same queue, so together they are one observation of it.
    weight *= count / np.maximum(count.sum(axis=1, keepdims=True), 1e-12)
    kept = weight.sum(axis=1) > 0
    rates = np.bincount(bins, rate, n) / np.maximum(seconds, 1)
    return _Bins(rates[kept], mean[kept], weight[kept])


def _busiest(bins: _Bins) -> tuple[float, float, float]:
    """Returns mean and standard deviation of the busiest bin's utilisation, and its lower bound.

    The bound is the lowest utilisation of QUIETER and BUSIEST that the data do not exclude; 0 if
    that is the lowest of all.
    """
    grid = np.concatenate([QUIETER, BUSIEST])
    u = bins.rate / bins.rate.max() * grid[:, None]
    power = np.sqrt(2 * (np.array(WORKERS) + 1)) - 1
    wait = u[None] ** power[:, None, None] / (1 - u[None])
    # In units of the wait at c workers with the class's own time:
    # latency = own * (1 + wait * factor).
    wait = (wait / np.array(WORKERS)[:, None, None]).reshape(-1, len(bins.rate))
    cost = _costs(wait, bins)
    spare = max(int((bins.weight > 0).sum()) - bins.weight.shape[1] - 3, 1)
    cost = (cost - cost.min()) / max(1.0, float(cost.min()) / spare)
    likely = np.exp(-(cost + (np.log(FACTORS) / FACTOR_SD) ** 2) / 2).sum(axis=1)
    by_u = likely.reshape(len(WORKERS), -1).sum(axis=0)
    lowest = int(np.argmax(by_u > EXCLUDED * by_u.max()))
    by_u = by_u[len(QUIETER) :] / by_u[len(QUIETER) :].sum()
    mean = float(by_u @ BUSIEST)
    return mean, float(np.sqrt(by_u @ (BUSIEST - mean) ** 2)), float(grid[lowest]) if lowest else 0.0


def _costs(wait: Floats, bins: _Bins) -> Floats:
    """Weighted squared error for each row of `wait` and each of FACTORS.

    The model is latency = own time of the class + mean own time * factor * wait.
    """
    total = bins.weight.sum(axis=0)
    seen = total > 0
    weight, latency, total = bins.weight[:, seen], bins.latency[:, seen], total[seen]
    level = (weight * latency).sum(axis=0) / total
    y = latency - level
    by_bin, by_y = weight.sum(axis=1), (weight * y).sum(axis=1)
    class_mean = wait @ weight / total
    # y sums to 0 within a class, so the mean wait of the class does not matter.
    wait_y = (wait @ by_y)[:, None]
    wait_wait = (wait**2 @ by_bin - class_mean**2 @ total)[:, None]
    mean_level, mean_wait = level @ total / total.sum(), (class_mean @ total / total.sum())[:, None]
    scale = FACTORS * mean_level / (1 + FACTORS * mean_wait)
    cost: Floats = float((weight * y**2).sum()) - 2 * scale * wait_y + scale**2 * wait_wait
    return cost
