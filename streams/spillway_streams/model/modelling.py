"""All curves and capacities, computed from the tables of load and CPU.

The only state is the last curve of each class, which SLATE's two-stage update needs from one fit to
the next, and the times in which a cluster was apart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spillway_streams.batches.arrays import Ints
from spillway_streams.capacity.capacity import Capacity
from spillway_streams.curves import apart, curves
from spillway_streams.curves.buckets import N_BUCKETS, collect
from spillway_streams.curves.curves import LONG_AGO, Curve, Evidence
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import Key, LoadTable
from spillway_streams.model import service
from spillway_streams.model.pooled import Pooled, pooled
from spillway_streams.model.service import Recorded, Service

CURVES = (
    "fitted_at", "input_window", "service", "class", "a_ms", "b_ms", "a_se_ms", "b_se_ms", "norm_weight",
    "u_min", "u_max", "samples", "rmse_ms", "phase", "reason", "sd_a_ms", "sd_b_ms", "ab_correlation",
)  # fmt: skip
CAPACITIES = (
    "measured_at", "input_window", "cluster", "service", "capacity_rps", "source", "reason", "pods", "evidence",
    "cpu_rps", "cpu_se", "latency_rps", "latency_se", "limit_rps", "limit_se", "disagreement",
    "changed_at",
)  # fmt: skip
BUCKETS = (
    "window_start", "cluster", "service", "class", "bucket", "samples", "utilisation_sum", "exclusive_sum_ms",
    "exclusive_sq_ms2",
)  # fmt: skip
# Rows in the order of CURVES, CAPACITIES and BUCKETS.
CurveRow = tuple[
    int, str, str, str, float, float, float, float, float, float, float, int, float, str, str, float, float, float
]  # fmt: skip
CapacityRow = tuple[Any, ...]
BucketRow = tuple[int, str, str, str, int, int, float, float, float]
_BUCKET_WINDOW_S = 60
_NOTHING = (0.0, 0.0)  # rps and se of evidence that is absent


@dataclass(frozen=True)
class Options:
    min_samples: int = 30
    shift_window: int = 60
    capacity_seconds: int = 600


@dataclass(frozen=True)
class Fitted:
    """Rows of one service, in the order of CURVES, CAPACITIES and BUCKETS.

    `without_buckets`: seconds that have no buckets yet, because a capacity is missing.
    """

    curves: list[CurveRow]
    capacities: list[CapacityRow]
    buckets: list[BucketRow]
    without_buckets: dict[Key, set[int]]

    @property
    def disagreeing(self) -> int:
        """Number of clusters where other evidence of the capacity contradicts the decisive one."""
        return sum(row[CAPACITIES.index("disagreement")] > 1 for row in self.capacities)


class Modeller:
    """Fits curves and capacities on demand. Rows are in the order of CURVES and CAPACITIES."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._curves: dict[tuple[str, str], Curve] = {}
        self._outlying: dict[Key, frozenset[int]] = {}
        self._apart: dict[tuple[str, str], apart.State] = {}
        # Unix second since which samples of a class without a curve count.
        self._since: dict[tuple[str, str], int] = {}

    def fit(self, table: LoadTable, cpu: CpuTable, now_ms: int) -> tuple[list[CurveRow], list[CapacityRow]]:
        """Returns the rows of curves and of capacities at now_ms (Unix ms), in order of names."""
        rows: tuple[list[CurveRow], list[CapacityRow]] = ([], [])
        for name, keys in service.gather(table).items():
            fitted = self.fit_service(service.record(name, keys, table, cpu), {}, now_ms)
            rows[0].extend(fitted.curves)
            rows[1].extend(fitted.capacities)
        return rows

    def fit_service(
        self, recorded: Recorded, dirty: Mapping[Key, set[int]], now_ms: int, silent_s: int = 0
    ) -> Fitted:
        """Fits one service. Every minute that contains one of the `dirty` seconds gets buckets.

        `silent_s`: for how many seconds the service has brought no new second. The method touches
        only its arguments and the state of this service. It may therefore run in a thread, one call
        at a time.
        """
        model = service.model(recorded, self._options.capacity_seconds)
        name, (first, end), rows = recorded.name, _seconds(model), []
        for class_id, weight in zip(model.classes, model.weights.tolist(), strict=True):
            curve = self._update(name, class_id, model, silent_s)
            if curve:
                since = max(first, curve.fresh_from)
                outlying = model.outlying(class_id)
                left_out = sum(int((outlying[cluster] >= since).sum()) for cluster in model.measured())
                curve = replace(curve, reason=curve.reason + service.left_out(left_out))
                window = input_window(since, end)
                rows.append(_curve_row(now_ms, window, name, class_id, weight, curve))
        capacities = [
            _capacity_row(now_ms, model.clusters[cluster].seconds.at, cluster, name, found)
            for cluster, found in sorted(model.capacities.items())
        ]
        dirty = self._with_outliers(dirty, model, name)
        without_buckets = {key: seconds for key, seconds in dirty.items() if not model.knows(key.cluster)}
        with_buckets = {key: seconds for key, seconds in dirty.items() if key not in without_buckets}
        return Fitted(rows, capacities, [*bucket_rows(model, with_buckets)], without_buckets)

    def _with_outliers(self, dirty: Mapping[Key, set[int]], model: Service, name: str) -> dict[Key, set[int]]:
        """Adds the seconds that are an outlier in this fit or in the last one, but not in both."""
        changed = {key: set(seconds) for key, seconds in dirty.items()}
        for class_id in model.classes:
            for cluster, at in model.outlying(class_id).items():
                key, now = Key(name, class_id, cluster), frozenset(at.tolist())
                before = self._outlying.get(key, frozenset())
                if now != before:
                    changed.setdefault(key, set()).update(now ^ before)
                    self._outlying[key] = now
        return changed

    def forget(self, known: Collection[Key]) -> None:
        """Drops the state of all classes except those of these keys."""
        self._outlying = {key: at for key, at in self._outlying.items() if key in known}
        names = {(key.service, key.class_id) for key in known}
        self._curves = {name: curve for name, curve in self._curves.items() if name in names}
        self._apart = {name: state for name, state in self._apart.items() if name in names}
        self._since = {name: since for name, since in self._since.items() if name in names}

    def restore(self, windows: Iterable[tuple[str, str, str]]) -> None:
        """Restores from which second on samples count, so that forgotten samples stay forgotten.

        `windows`: (service, class, input_window) of the newest stored curves.
        """
        for name, class_id, window in windows:
            self._since[name, class_id] = int(window.partition("-")[0]) // 1000

    def _update(self, name: str, class_id: str, model: Service, silent_s: int) -> Curve | None:
        samples, key = pooled(model, class_id), (name, class_id)
        now, least = int(samples.at.max()), self._options.min_samples
        recent = now + silent_s - self._options.shift_window
        old, state = self._curves.get(key), self._apart.get(key, apart.State())
        since = old.fresh_from if old else self._since.get(key, LONG_AGO)
        samples = replace(samples, left_out=samples.mask(state))
        seen = _evidence(samples, old, since, recent)
        before = state.before_from(recent)
        if state.times or (len(samples.clusters) > 1 and samples.changes(before, recent)):
            state = apart.update(state, samples.by_cluster(before, recent), least, now, recent)
            state = self._apart[key] = state.kept(int(samples.at.min()))
            left_out = samples.mask(state)
            if not np.array_equal(left_out, samples.left_out):
                samples = replace(samples, left_out=left_out)
                seen = _evidence(samples, old, since, recent)
        pods = [capacity.rps / capacity.pods for capacity in model.capacities.values()]
        new = curves.update(old, seen, now, least, float(np.mean(pods)) if pods else 0.0)
        if new and new.phase == "prior" and not model.capacities:
            new = replace(
                new, reason="M/M/1 with b = 0 at no load: neither CPU use nor latency gives a capacity yet"
            )
        if new is None:
            return None
        self._curves[key] = new
        return replace(new, reason=new.reason + state.described())


def _evidence(samples: Pooled, old: Curve | None, since: int, recent: int) -> Evidence:
    """Returns what a class's curve may rest on. `since` and `recent`: Unix seconds."""
    retrained, end = old.retrained_at if old else LONG_AGO, int(samples.at.max()) + 1
    counted = (samples.at >= recent) & ~samples.left_out
    return Evidence(
        kept=samples.within(since, end),
        before=samples.within(since, retrained),
        fresh=samples.within(retrained, end),
        recent=samples.within(recent, end),
        samples_including_overload=int(samples.samples_including_overload[counted].sum()),
        since=since,
    )


def bucket_rows(model: Service, dirty: Mapping[Key, set[int]]) -> Iterator[BucketRow]:
    """Rows of BUCKETS for every minute that contains one of the `dirty` seconds.

    Each minute has all ten buckets. A minute that is computed again with another capacity therefore
    replaces all of its former rows.
    """
    for key, seconds in sorted(dirty.items()):
        samples = model.samples(key.class_id, key.cluster)
        minutes = samples.at // _BUCKET_WINDOW_S * _BUCKET_WINDOW_S
        # The model has no data of earlier seconds.
        covered = (second for second in seconds if second >= samples.at[0])
        for minute in sorted({second // _BUCKET_WINDOW_S * _BUCKET_WINDOW_S for second in covered}):
            inside = minutes == minute
            found = collect(
                samples.at[inside],
                samples.u[inside],
                samples.exclusive_ms[inside],
                samples.sd_ms[inside],
                samples.samples[inside],
            )
            squares = found.exclusive_ms**2 + found.sd_ms**2
            for b in range(N_BUCKETS):
                n = int(found.samples[b])
                yield (
                    minute, key.cluster, key.service, key.class_id, b, n, float(n * found.utilisation[b]),
                    float(n * found.exclusive_ms[b]), float(n * squares[b]),
                )  # fmt: skip


def _seconds(model: Service) -> tuple[int, int]:
    """First second, and last second plus one, of the Unix seconds that a model rests on."""
    found = [cluster.seconds.at for cluster in model.clusters.values()]
    return min(int(at[0]) for at in found), max(int(at[-1]) for at in found) + 1


def input_window(first: int, end: int) -> str:
    """Formats a window of Unix seconds as "<start>-<end>" in Unix milliseconds."""
    return f"{first * 1000}-{end * 1000}"


def _capacity_row(now_ms: int, at: Ints, cluster: str, name: str, found: Capacity) -> CapacityRow:
    window = input_window(int(at[0]), int(at[-1]) + 1)
    evidence = "assumed" if found.assumed else found.evidence
    others = {} if found.assumed else found.others
    limit = others.get("queue") or others.get("refusals") or _NOTHING
    return (
        now_ms, window, cluster, name, found.rps, found.source, found.reason, found.counted, evidence,
        *others.get("cpu", _NOTHING), *others.get("latency", _NOTHING), *limit, found.disagreement,
        found.changed_at,
    )  # fmt: skip


def _curve_row(now_ms: int, window: str, name: str, class_id: str, weight: float, curve: Curve) -> CurveRow:
    return (
        now_ms, window, name, class_id, curve.a_ms, curve.b_ms, curve.a_se_ms, curve.b_se_ms, weight,
        curve.u_min, curve.u_max, curve.samples, curve.rmse_ms, curve.phase, curve.reason,
        curve.sd_a_ms, curve.sd_b_ms, curve.ab_correlation,
    )  # fmt: skip
