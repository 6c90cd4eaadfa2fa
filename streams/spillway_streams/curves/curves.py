"""The two-stage update of a curve (SLATE 4.2, "Continuous Model Update"). Pure.

prior    Fewer than three utilisation buckets are filled: the M/M/1 identity with b = 0. There the
         standard deviation of one call equals the mean.
retrain  A full fit. The first one is made as soon as three buckets are filled. It is repeated
         - when buckets are filled that the last fit did not have,
         - when the capacity has moved that utilisation is a share of,
         - when every bucket, or every bucket that the service reaches, has enough fresh samples.
         The last kind fits all data while old and new data agree. When they do not agree, it fits
         the fresh data alone, and the old data are forgotten.
shift    In all other cases: the shape stays, and b moves by the mean prediction error of the recent
         buckets, less the part that chance explains. Without recent samples, b returns to the
         fitted value. The spread of single calls stays as well.
"""

from dataclasses import dataclass, replace
from math import nan

import numpy as np

from spillway_streams.curves import fit
from spillway_streams.curves.buckets import N_BUCKETS, Buckets

FIRST_FIT_BUCKETS = 3
CAPACITY_MOVED = 0.1  # relative: a fit against another capacity has another utilisation axis
CHANCE = 3.0  # standard errors: a smaller prediction error is no reason to shift
CHANGED = 9.0  # mean squared prediction error of fresh buckets over its variance: not by chance
_BLOCKS = 10  # of time: fewer blocks show little of how much a queue's latency scatters
LONG_AGO = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Curve:
    """One version of a class's curve and its basis. `base_b_ms` is b before any shift.

    The standard deviation of one call at utilisation u is sd_a_ms / (1 - u) + sd_b_ms.
    `ab_correlation`: of the errors of a and b. These three are NaN where they are unknown.
    """

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
    fresh_from: int = LONG_AGO  # Unix second: earlier samples are not used
    retrained_at: int = LONG_AGO  # Unix second of the last retrain: later samples are fresh
    capacity_rps: float = 0.0  # of one pod, mean over clusters, at the time of the fit; 0: unknown
    sd_a_ms: float = nan
    sd_b_ms: float = nan
    ab_correlation: float = nan


@dataclass(frozen=True)
class Evidence:
    """Buckets of one class.

    `kept`: all samples since the Unix second `since`; earlier ones are forgotten. `before` and
    `fresh`: those of `kept` before and after the last retrain. `recent`: about the last minute.
    `samples_including_overload`: number of samples of that minute, including those in overload.
    """

    kept: Buckets
    before: Buckets
    fresh: Buckets
    recent: Buckets
    samples_including_overload: int
    since: int = LONG_AGO


def update(curve: Curve | None, seen: Evidence, now: int, at_least: int, capacity_rps: float) -> Curve | None:
    """Returns the next version of a curve; None while there are no data.

    `now`: Unix second; `at_least`: samples that fill a bucket; `capacity_rps`: capacity of one pod,
    mean over clusters, which utilisation is a share of.
    """
    filled = seen.kept.filled(at_least)

    def retrained(reason: str, at: int = now, since: int = seen.since, data: Buckets = seen.kept) -> Curve:
        found = _fitted(data, data.filled(at_least), reason)
        return replace(found, fresh_from=since, retrained_at=at, capacity_rps=capacity_rps)

    if curve is None or curve.phase == "prior":
        if len(filled) >= FIRST_FIT_BUCKETS:
            return retrained(f"first fit: {len(filled)} of {N_BUCKETS} buckets filled")
        if not seen.kept.samples.sum():
            return curve
        return replace(_prior(seen.kept, len(filled), at_least), fresh_from=seen.since)
    moved = (
        curve.capacity_rps and abs(capacity_rps - curve.capacity_rps) > CAPACITY_MOVED * curve.capacity_rps
    )
    if len(filled) >= FIRST_FIT_BUCKETS and moved:
        reason = f"capacity of a pod moved from {curve.capacity_rps:.1f} to {capacity_rps:.1f} req/s"
        # The same data over another axis: this retrain does not make fresh data old.
        return retrained(reason, curve.retrained_at)
    if reason := _renewed(curve, seen, at_least):
        if (change := _change(curve, seen, at_least)) > CHANGED:
            reason += f", {change:.0f} times further from the old data than chance explains: the old data is dropped"
            return retrained(reason, since=curve.retrained_at, data=seen.fresh)
        return retrained(f"{reason}, which agrees with the old data")
    if filled > curve.filled:
        return retrained(f"{len(filled - curve.filled)} more buckets filled")
    return _shift(curve, seen, at_least)


def _renewed(curve: Curve, seen: Evidence, at_least: int) -> str:
    """Why fresh data cover the whole curve; '' while they do not.

    They cover it when every bucket has fresh samples. It is also enough when every bucket has them
    that the curve rests on, and they are at least half as many samples as the curve has. SLATE
    waits for all ten buckets. A service that never leaves the middle would then keep its first
    shape for ever.
    """
    fresh = seen.fresh.filled(at_least)
    if len(fresh) == N_BUCKETS:
        return "every bucket has fresh data"
    enough = 2 * seen.fresh.samples.sum() >= min(curve.samples, seen.kept.samples.sum())
    if len(fresh) >= FIRST_FIT_BUCKETS and fresh >= curve.filled and enough:
        return f"each of the {len(fresh)} buckets in use has fresh data"
    return ""


def _change(curve: Curve, seen: Evidence, at_least: int) -> float:
    """Mean squared difference between fresh and older data, in units of its variance.

    Only buckets that both fill are compared. Infinite when there are no older samples at all.
    """
    both = sorted(seen.fresh.filled(at_least) & seen.before.filled(at_least))
    if not both:
        return np.inf if seen.before.samples.sum() == 0 else 0.0
    new, old = seen.fresh.points(both), seen.before.points(both)
    difference = new.latency - old.latency - curve.a_ms * (new.stretch - old.stretch)
    variance = fit.scatter(new, new.latency) + fit.scatter(old, old.latency)
    return float(np.mean(difference**2 / (variance + (fit.MODEL_ERROR * old.latency) ** 2)))


def _prior(buckets: Buckets, filled: int, at_least: int) -> Curve:
    seen = buckets.samples > 0
    u, mean, n = buckets.utilisation[seen], buckets.exclusive_ms[seen], buckets.samples[seen]
    a = float(np.average(mean / buckets.stretch[seen], weights=n))
    error = mean - a * buckets.stretch[seen]
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
        sd_a_ms=a,
        sd_b_ms=0.0,
    )


def _fitted(buckets: Buckets, filled: frozenset[int], reason: str) -> Curve:
    used = sorted(filled)
    u, samples = buckets.utilisation[used], buckets.samples[used]
    found = fit.fit(buckets.points(used))
    sd_a, sd_b = _spread(buckets, used)
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
        sd_a_ms=sd_a,
        sd_b_ms=sd_b,
        ab_correlation=found.ab_correlation,
    )


def _spread(buckets: Buckets, used: list[int]) -> tuple[float, float]:
    """Fits the standard deviation of one call; (NaN, NaN) where fewer than two buckets show one.

    It has the form and the bounds of the mean, and is fitted in the same way. A single sample shows
    no spread.
    """
    several = [bucket for bucket in used if buckets.samples[bucket] > 1]
    if len(several) < 2:  # there are two parameters
        return nan, nan
    found = fit.fit(buckets.spread_points(several))
    return found.a, found.b


def _shift(curve: Curve, seen: Evidence, at_least: int) -> Curve:
    recent = seen.recent
    used = sorted(recent.filled(at_least))
    if not used:
        # Half as many samples, so that a class with about `at_least` samples does not flicker.
        silent = 2 * seen.samples_including_overload < at_least and curve.phase == "shift"
        reason = "too few recent samples: the shift is undone"
        return replace(curve, b_ms=curve.base_b_ms, reason=reason) if silent else curve
    u, points = recent.utilisation[used], recent.points(used)
    unshifted = curve.a_ms * points.stretch + curve.base_b_ms
    error, se = fit.mean_error(points, unshifted, _scale(seen, at_least))
    b = max(curve.base_b_ms + _beyond_chance(error, se), -curve.a_ms)
    residual = points.latency - curve.a_ms * points.stretch - b
    return replace(
        curve,
        b_ms=b,
        u_min=min(curve.u_min, float(u.min())),
        u_max=max(curve.u_max, float(u.max())),
        rmse_ms=float(np.sqrt(np.average(residual**2, weights=points.samples))),
        phase="shift",
        reason=f"{len(used)} of {N_BUCKETS} buckets are fresh, {error:+.3f} ms ({abs(error) / max(se, 1e-9):.1f} "
        f"standard errors) off: shifted by {b - curve.base_b_ms:+.3f} ms",
    )


def _scale(seen: Evidence, at_least: int) -> float:
    """How much the queue's latency scatters: the scale of the working model of fit.py.

    It comes from the data that the curve rests on, which a later change has not affected. The
    recent minute itself holds only three blocks, and their scatter is as often too small as it is
    too large.
    """
    enough = len(seen.before.blocks) >= _BLOCKS and seen.before.filled(at_least)
    data = seen.before if enough else seen.kept
    points = data.points(sorted(data.filled(at_least)))
    return fit.scatter_scale(points, points.latency)


def _beyond_chance(error: float, se: float) -> float:
    """Returns the part of an error that chance does not explain.

    Nothing of an error within CHANCE standard errors, and nearly all of one twice as large. This is
    a positive-part James-Stein factor; its fourth power is closer to a choice of all or nothing.
    """
    return error * max(0.0, 1 - (CHANCE * se / error) ** 4) if error else 0.0
