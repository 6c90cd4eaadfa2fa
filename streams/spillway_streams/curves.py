"""The two-stage update of a curve (SLATE 4.2, "Continuous Model Update"). Pure.

prior    fewer than three utilisation buckets are filled: the M/M/1 identity, b = 0
retrain  a full fit: the first one as soon as three buckets are filled; again whenever buckets are
         filled that it had not seen, its samples have doubled, or the capacity that utilisation is
         a share of has moved; and, once every bucket has fresh data, over fresh data only, after
         which old samples are forgotten
shift    otherwise: the shape stays, b moves by the mean prediction error of the recent buckets
"""

from dataclasses import dataclass, replace

import numpy as np
from spillway_contracts import names

from spillway_streams import fit
from spillway_streams.capacity import grouped

N_BUCKETS = names.VALUE_BUCKET_COUNT
OVERLOAD = 0.98  # from here on a queue only grows: no steady state to learn from
FIRST_FIT_BUCKETS = 3
CAPACITY_MOVED = 0.1  # relative: a shape fitted against another capacity is a shape over another axis
LONG_AGO = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Buckets:
    """Exclusive time by utilisation: arrays of N_BUCKETS; means, ms; empty buckets hold zeros."""

    utilisation: np.ndarray
    exclusive_ms: np.ndarray
    sd_ms: np.ndarray
    samples: np.ndarray

    def filled(self, at_least: int) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.samples >= at_least).tolist())


@dataclass(frozen=True)
class Curve:
    """A version of one class's curve and what it rests on. `base_b_ms` is b before any shift."""

    a_ms: float
    b_ms: float
    a_se_ms: float
    b_se_ms: float
    u_min: float
    u_max: float
    samples: int
    rmse_ms: float
    phase: str
    reason: str
    base_b_ms: float
    filled: frozenset[int] = frozenset()
    fresh_from: int = LONG_AGO  # Unix second from which samples are fresh
    capacity_rps: float = 0.0  # mean over clusters, as of the fit


def collect(u: np.ndarray, exclusive_ms: np.ndarray, sd_ms: np.ndarray, samples: np.ndarray) -> Buckets:
    """Buckets of seconds (n,): utilisation, mean exclusive time, its spread within the second, and
    samples. Seconds in overload and seconds without samples are left out."""
    good = (u < OVERLOAD) & (samples > 0)
    u, exclusive_ms, sd_ms, samples = u[good], exclusive_ms[good], sd_ms[good], samples[good]
    bins = np.minimum((u * N_BUCKETS).astype(int), N_BUCKETS - 1)
    mean_u, mean, _, n = grouped(bins, N_BUCKETS, u, exclusive_ms, samples)
    variance = np.bincount(bins, samples * (sd_ms**2 + (exclusive_ms - mean[bins]) ** 2), N_BUCKETS)
    return Buckets(mean_u, mean, np.sqrt(variance / np.maximum(n, 1)), n)


def update(
    curve: Curve | None, fresh: Buckets, recent: Buckets, now: int, at_least: int, capacity_rps: float
) -> Curve | None:
    """The next version. `fresh`: seconds since curve.fresh_from; `recent`: the last minute or so;
    now: Unix second; at_least: samples that fill a bucket; capacity_rps: what utilisation is a share
    of, mean over clusters. None while there is nothing to say."""
    filled = fresh.filled(at_least)
    samples = int(fresh.samples.sum())

    def retrained(reason: str, fresh_from: int) -> Curve:
        return replace(_fitted(fresh, filled, reason), fresh_from=fresh_from, capacity_rps=capacity_rps)

    if curve is None or curve.phase == "prior":
        if len(filled) >= FIRST_FIT_BUCKETS:
            return retrained(f"first fit: {len(filled)} of {N_BUCKETS} buckets filled", LONG_AGO)
        return _prior(fresh, len(filled), at_least) if samples else curve
    if len(filled) == N_BUCKETS:
        return retrained("every bucket has fresh data", now)
    if (
        len(filled) >= FIRST_FIT_BUCKETS
        and abs(capacity_rps - curve.capacity_rps) > CAPACITY_MOVED * curve.capacity_rps
    ):
        moved = f"capacity moved from {curve.capacity_rps:.1f} to {capacity_rps:.1f} req/s"
        return retrained(moved, curve.fresh_from)
    is_partial = len(curve.filled) < N_BUCKETS
    if is_partial and filled > curve.filled:
        return retrained(f"{len(filled - curve.filled)} more buckets filled", curve.fresh_from)
    if is_partial and filled >= curve.filled and samples >= 2 * curve.samples:
        return retrained("twice the samples of the last fit", curve.fresh_from)
    return _shift(curve, recent, at_least)


def _prior(buckets: Buckets, filled: int, at_least: int) -> Curve:
    seen = buckets.samples > 0
    u, mean, n = buckets.utilisation[seen], buckets.exclusive_ms[seen], buckets.samples[seen]
    a = float(np.average(mean * (1 - u), weights=n))
    error = mean - a / (1 - u)
    return Curve(
        a_ms=a,
        b_ms=0.0,
        a_se_ms=a,
        b_se_ms=a,
        u_min=float(u.min()),
        u_max=float(u.max()),
        samples=int(n.sum()),
        rmse_ms=float(np.sqrt(np.average(error**2, weights=n))),
        phase="prior",
        reason=f"M/M/1 with b = 0: {filled} of {N_BUCKETS} buckets hold {at_least} samples, a fit needs "
        f"{FIRST_FIT_BUCKETS}",
        base_b_ms=0.0,
    )


def _fitted(buckets: Buckets, filled: frozenset[int], reason: str) -> Curve:
    used = sorted(filled)
    u, samples = buckets.utilisation[used], buckets.samples[used]
    found = fit.fit(u, buckets.exclusive_ms[used], buckets.sd_ms[used], samples)
    return Curve(
        a_ms=found.a,
        b_ms=found.b,
        a_se_ms=found.a_se,
        b_se_ms=found.b_se,
        u_min=float(u.min()),
        u_max=float(u.max()),
        samples=int(samples.sum()),
        rmse_ms=found.rmse,
        phase="retrain",
        reason=reason,
        base_b_ms=found.b,
        filled=filled,
    )


def _shift(curve: Curve, recent: Buckets, at_least: int) -> Curve:
    used = sorted(recent.filled(at_least))
    if not used:
        return curve
    u, mean, n = recent.utilisation[used], recent.exclusive_ms[used], recent.samples[used]
    error = float(np.average(mean - curve.a_ms / (1 - u) - curve.base_b_ms, weights=n))
    b = max(curve.base_b_ms + error, 0.0)
    residual = mean - curve.a_ms / (1 - u) - b
    return replace(
        curve,
        b_ms=b,
        u_min=min(curve.u_min, float(u.min())),
        u_max=max(curve.u_max, float(u.max())),
        rmse_ms=float(np.sqrt(np.average(residual**2, weights=n))),
        phase="shift",
        reason=f"{len(used)} of {N_BUCKETS} buckets are fresh: shifted by {b - curve.base_b_ms:+.3f} ms",
    )
