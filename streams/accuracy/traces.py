"""Compares curves fitted to recorded traces with the recorded latencies at each load.

    python streams/accuracy/traces.py [--json] FILE...

FILE is a recording of one load in the JSON of the Jaeger UI; .gz is allowed.

The computation is that of the jobs, without servers: OTLP, the native engine, sums per second, the
models. Counts are corrected for sampling. A curve states the mean, which is what routing adds up.
The mean of a skewed time is well above its median (`curve of median`). The same form is therefore
also fitted to the medians of the loads and compared with them.

    curve      the model of all loads at this load, compared with the calls' mean exclusive time
    held out   the same for a model that has not seen this load
    medians    a / (1 - u) + b through the medians of all loads, compared with this load's median

The root is the whole request: exclusive and network times along the call graph, compared with the
durations of the entry calls.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from spillway_native import Closed
from spillway_streams.batches import columns, native_batch
from spillway_streams.batches.columns import Columns
from spillway_streams.curves import fit
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import CALL_COLUMNS, Key, LoadTable
from spillway_streams.model.modelling import Modeller, Options
from spillway_streams.process.counters import Counters
from spillway_streams.recorded import jaeger, offline

CLUSTER = "recorded"
ROOT = "root"
_CALLS = {name: columns.CALLS[name] for name in CALL_COLUMNS | {"source_service", "duration_us"}}
_EDGES = {name: columns.EDGES[name] for name in ("network_us", "adjusted_count")}


@dataclass(frozen=True)
class Load:
    """The calls and edges of one file, by column name."""

    name: str
    calls: Columns
    edges: Columns

    @property
    def seconds(self) -> float:
        """Time from the first to the last start of a call, in seconds."""
        at = self.calls["started_at"]
        return float(at.max() - at.min()) / 1e6

    def of(self, class_id: str) -> np.ndarray:
        """Returns a mask of the calls of a class, shape (calls,)."""
        return self.calls["class"] == class_id


@dataclass(frozen=True)
class Row:
    """One class (or the root) at one load.

    `rps` is corrected for sampling. Times are in ms, and errors are relative.
    """

    name: str
    load: str
    rps: float
    utilisation: float
    median_ms: float
    mean_ms: float
    curve_ms: float
    held_out_ms: float
    medians_ms: float

    @property
    def error_of_medians(self) -> float:
        return self.medians_ms / self.median_ms - 1

    @property
    def error_of_median(self) -> float:
        return self.curve_ms / self.median_ms - 1

    @property
    def error_of_mean(self) -> float:
        return self.curve_ms / self.mean_ms - 1

    @property
    def error_held_out(self) -> float:
        return self.held_out_ms / self.mean_ms - 1


def read(path: Path) -> Load:
    """Returns the calls and edges of one file, as the job `exclusive` computes them."""
    parts = [
        (native_batch.read(_CALLS, output.calls), native_batch.read(_EDGES, output.edges))
        for output in closed(path)
    ]
    calls, edges = zip(*parts, strict=True)
    return Load(path.name.split(".")[0], columns.concat(_CALLS, calls), columns.concat(_EDGES, edges))


def closed(path: Path) -> Iterator[Closed]:
    """Yields what the native engine returns for one file, in order of the ticks."""
    batches = jaeger.batches(jaeger.in_time_order(jaeger.read(path)), CLUSTER)
    return offline.close(batches, Counters())


class Model:
    """Curves and capacities fitted to some of the loads."""

    def __init__(self, loads: Iterable[Load]) -> None:
        table = LoadTable(1_000_000, Counters())
        for load in loads:
            table.add(load.calls)
        self.curves, capacities = Modeller(Options()).fit(table, CpuTable(1), 0)
        self.by_class = {row[3]: row for row in self.curves}
        self.capacity = {row[3]: row for row in capacities}
        self.keys: list[Key] = sorted(table.series)

    def utilisation(self, load: Load, service: str) -> float:
        """Returns the utilisation of a service at a load, at most 0.99.

        It is the normalised rate of the whole load, divided by the capacity. 0 if the capacity is
        unknown.
        """
        if service not in self.capacity:
            return 0.0
        rate = sum(
            rps(load, key.class_id) * self.by_class[key.class_id][8]
            for key in self.keys
            if key.service == service
        )
        return min(rate / self.capacity[service][4], 0.99)

    def exclusive_ms(self, load: Load, key: Key) -> float:
        """Returns the mean exclusive time in ms that the curve of a class states at a load."""
        row, u = self.by_class[key.class_id], self.utilisation(load, key.service)
        return row[4] / (1 - u) + row[5]

    def root_ms(self, load: Load) -> float:
        """Returns the mean time of a whole request in ms.

        It is the sum of the exclusive time of every class and the network time of every edge, each
        as often as it occurs in a request.
        """
        requests = entries(load)
        exclusive = sum(
            rps(load, key.class_id) * load.seconds / requests * self.exclusive_ms(load, key)
            for key in self.keys
        )
        known = load.edges["network_us"] >= 0
        network = (load.edges["network_us"] * load.edges["adjusted_count"])[known].sum() / 1000 / requests
        return exclusive + float(network)


def rps(load: Load, class_id: str) -> float:
    """Returns the requests per second of a class, corrected for sampling."""
    return float(load.calls["adjusted_count"][load.of(class_id)].sum()) / load.seconds


def entries(load: Load) -> float:
    """Returns the number of requests at the entry, corrected for sampling."""
    return float(load.calls["adjusted_count"][_entry(load)].sum())


def rows(loads: list[Load]) -> list[Row]:
    """Returns a row for every class and for the root, at every load.

    The model that is held out at a load is fitted to all other loads.
    """
    whole = Model(loads)
    others = {load.name: Model(other for other in loads if other is not load) for load in loads}
    found = []
    for key in whole.keys:
        times = [load.calls["exclusive_us"][_good(load) & load.of(key.class_id)] / 1000 for load in loads]
        u = np.array([whole.utilisation(load, key.service) for load in loads])
        rate = [rps(load, key.class_id) for load in loads]
        curve = [(whole.exclusive_ms(load, key), others[load.name].exclusive_ms(load, key)) for load in loads]
        found += _rows(key.class_id, loads, rate, u, times, curve)
    times = [load.calls["duration_us"][_good(load) & _entry(load)] / 1000 for load in loads]
    u = np.array([whole.utilisation(load, _entry_service(load)) for load in loads])
    curve = [(whole.root_ms(load), others[load.name].root_ms(load)) for load in loads]
    return found + _rows(ROOT, loads, [entries(load) / load.seconds for load in loads], u, times, curve)


def _rows(
    name: str,
    loads: list[Load],
    rate: list[float],
    u: np.ndarray,
    times: list[np.ndarray],
    curve: list[tuple],
) -> list[Row]:
    medians = np.array([float(np.median(t)) for t in times])
    through = _through(
        u, medians, np.array([float(len(t)) for t in times]), np.array([load.seconds for load in loads])
    )
    return [
        Row(
            name, load.name, rate[i], float(u[i]), float(medians[i]), float(times[i].mean()), *curve[i],
            float(through(u[i])),
        )
        for i, load in enumerate(loads)
    ]  # fmt: skip


def _through(u: np.ndarray, ms: np.ndarray, samples: np.ndarray, seconds: np.ndarray) -> fit.Fit:
    """Returns the curve that is nearest to one value per load."""
    stretch = 1 / (1 - u)
    whole = samples[None], (samples * stretch)[None], (samples * ms)[None]
    return fit.fit(fit.Points(stretch, ms, 0 * ms, samples, seconds, *whole))


def _good(load: Load) -> np.ndarray:
    return ~load.calls["failed"].astype(bool)


def _entry(load: Load) -> np.ndarray:
    return load.calls["source_service"] == ""


def _entry_service(load: Load) -> str:
    return load.calls["service"][_entry(load)][0]


def summary(found: list[Row]) -> dict[str, float]:
    """Returns the median and the largest absolute error, over classes and for the root."""
    result = {}
    for name, part in (
        ("class", [r for r in found if r.name != ROOT]),
        ("root", [r for r in found if r.name == ROOT]),
    ):
        for error in ("error_of_mean", "error_held_out", "error_of_medians", "error_of_median"):
            values = np.abs([getattr(row, error) for row in part])
            result[f"{name}_{error}_median"] = round(float(np.median(values)), 4)
            result[f"{name}_{error}_largest"] = round(float(values.max()), 4)
    return result


def table(found: list[Row]) -> str:
    """Returns the rows as a text table."""
    head = (
        f"{'class':<48} {'load':<8} {'rps':>6} {'u':>5} {'mean':>7} {'curve':>7} {'error':>7} {'held out':>8} "
        f"{'median':>7} {'medians':>7} {'error':>7} {'curve of median':>15}"
    )
    lines = [head, "-" * len(head)]
    for r in found:
        lines.append(
            f"{r.name[:48]:<48} {r.load:<8} {r.rps:6.1f} {r.utilisation:5.2f} {r.mean_ms:7.2f} {r.curve_ms:7.2f} "
            f"{r.error_of_mean:+7.1%} {r.error_held_out:+8.1%} {r.median_ms:7.2f} {r.medians_ms:7.2f} "
            f"{r.error_of_medians:+7.1%} {r.error_of_median:+15.1%}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="only the JSON line, with every row")
    arguments = parser.parse_args()
    loads = sorted((read(path) for path in arguments.files), key=lambda load: entries(load) / load.seconds)
    found = rows(loads)
    if arguments.json:
        print(json.dumps(summary(found) | {"rows": [asdict(row) for row in found]}))
    else:
        print(f"own time, ms, by class and load\n\n{table(found)}\n\n{json.dumps(summary(found))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
