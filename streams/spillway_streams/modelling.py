"""All curves and capacities, from the tables of load and CPU; remembers each class's curve. The
only state is what SLATE's two-stage update needs from one fit to the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from spillway_streams import curves, service
from spillway_streams.cpu import CpuTable
from spillway_streams.curves import Buckets, Curve
from spillway_streams.load import Key, LoadTable
from spillway_streams.service import Service

CURVES = (
    "fitted_at", "input_window", "service", "class", "a_ms", "b_ms", "a_se_ms", "b_se_ms", "norm_weight",
    "u_min", "u_max", "samples", "rmse_ms", "phase", "reason",
)  # fmt: skip
CAPACITIES = ("measured_at", "input_window", "cluster", "service", "capacity_rps", "source", "reason")
BUCKETS = (
    "window_start", "cluster", "service", "class", "bucket", "samples", "utilisation", "exclusive_ms",
    "exclusive_ms_sd",
)  # fmt: skip
_BUCKET_WINDOW_S = 60


@dataclass(frozen=True)
class Options:
    min_samples: int = 30
    shift_window: int = 60
    capacity_seconds: int = 600


class Modeller:
    """Fits on demand; rows are tuples in the order of CURVES and CAPACITIES."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._curves: dict[tuple[str, str], Curve] = {}
        self._services: dict[str, Service] = {}

    def fit(self, table: LoadTable, cpu: CpuTable, now_ms: int) -> tuple[list[tuple], list[tuple]]:
        """Rows of curves and of capacities as of now_ms (Unix ms), in order of names."""
        self._services = {
            name: service.model(name, keys, table, cpu, self._options.capacity_seconds)
            for name, keys in service.gather(table).items()
        }
        curve_rows, capacity_rows = [], []
        for name, one in self._services.items():
            window = input_window(one)
            for class_id, weight in zip(one.classes, one.weights.tolist(), strict=True):
                curve = self._update(name, class_id, one)
                if curve:
                    curve_rows.append(_curve_row(now_ms, window, name, class_id, weight, curve))
            for cluster, found in sorted(one.capacities.items()):
                capacity_rows.append((now_ms, window, cluster, name, found.rps, found.source, found.reason))
        return curve_rows, capacity_rows

    def _update(self, name: str, class_id: str, one: Service) -> Curve | None:
        samples = [one.samples(class_id, cluster) for cluster in one.measured()]
        at = np.concatenate([s.at for s in samples])
        parts = [
            np.concatenate(part)
            for part in zip(*((s.u, s.exclusive_ms, s.sd_ms, s.samples) for s in samples), strict=True)
        ]
        now = int(at.max())
        old = self._curves.get((name, class_id))

        def since(first: int) -> Buckets:
            return curves.collect(*(part[at >= first] for part in parts))

        fresh = since(old.fresh_from if old else curves.LONG_AGO)
        recent = since(now - self._options.shift_window)
        known = [capacity.rps for capacity in one.capacities.values()]
        capacity_rps = float(np.mean(known)) if known else 0.0
        new = curves.update(old, fresh, recent, now, self._options.min_samples, capacity_rps)
        if new and new.phase == "prior" and not one.capacities:
            new = replace(
                new, reason="M/M/1 with b = 0 at no load: neither CPU use nor latency tells a capacity yet"
            )
        if new:
            self._curves[name, class_id] = new
        return new

    def buckets(self, dirty: dict[Key, set[int]]) -> Iterator[tuple]:
        """Rows of buckets of every minute that holds one of these seconds, as of the last fit."""
        for key, seconds in sorted(dirty.items()):
            one = self._services.get(key.service)
            if one is None or key.class_id not in one.classes or not one.knows(key.cluster):
                continue
            samples = one.samples(key.class_id, key.cluster)
            minutes = samples.at // _BUCKET_WINDOW_S * _BUCKET_WINDOW_S
            for minute in sorted({second // _BUCKET_WINDOW_S * _BUCKET_WINDOW_S for second in seconds}):
                inside = minutes == minute
                found = curves.collect(
                    samples.u[inside],
                    samples.exclusive_ms[inside],
                    samples.sd_ms[inside],
                    samples.samples[inside],
                )
                for b in sorted(found.filled(1)):
                    yield (
                        minute, key.cluster, key.service, key.class_id, b, int(found.samples[b]),
                        float(found.utilisation[b]), float(found.exclusive_ms[b]), float(found.sd_ms[b]),
                    )  # fmt: skip


def input_window(one: Service) -> str:
    """ "<start>-<end>" in Unix milliseconds of the seconds that a service's model rests on."""
    first = min(int(seconds.at[0]) for seconds in one.seconds.values())
    last = max(int(seconds.at[-1]) for seconds in one.seconds.values())
    return f"{first * 1000}-{(last + 1) * 1000}"


def _curve_row(now_ms: int, window: str, name: str, class_id: str, weight: float, curve: Curve) -> tuple:
    return (
        now_ms, window, name, class_id, curve.a_ms, curve.b_ms, curve.a_se_ms, curve.b_se_ms, weight,
        curve.u_min, curve.u_max, curve.samples, curve.rmse_ms, curve.phase, curve.reason,
    )  # fmt: skip


class Novelty:
    """Which rows say something new: values that moved by more than a share, or nothing for a while."""

    def __init__(
        self, identity: tuple[int, ...], values: tuple[int, ...], share: float = 0.01, ms: int = 30_000
    ):
        self._identity, self._values, self._share, self._ms = identity, values, share, ms
        self._last: dict[tuple, tuple] = {}

    def keep(self, rows: list[tuple]) -> list[tuple]:
        """Rows (their first value is their time in ms) worth storing."""
        kept = []
        for row in rows:
            name = tuple(row[i] for i in self._identity)
            if self._is_new(row, self._last.get(name)):
                self._last[name] = row
                kept.append(row)
        return kept

    def _is_new(self, row: tuple, last: tuple | None) -> bool:
        if last is None or row[0] - last[0] >= self._ms:
            return True
        for i in self._values:
            if isinstance(row[i], str):
                if row[i] != last[i]:
                    return True
            elif abs(row[i] - last[i]) > self._share * max(abs(last[i]), 1e-9):
                return True
        return False
