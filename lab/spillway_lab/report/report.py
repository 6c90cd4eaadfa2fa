"""Reports of a comparison of policies: a table, one JSON object and a plot."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spillway_lab.load.machine import Busyness
from spillway_lab.load.samples import Samples, Summary, summarise


@dataclass(frozen=True)
class Result:
    """One policy under the measured load."""

    samples: Samples  # of all clusters
    egress_usd_per_hour: float

    @property
    def summary(self) -> Summary:
        return summarise(self.samples)


_COLUMNS = ("policy", "mean ms", "p50 ms", "p95 ms", "p99 ms", "failed", "remote", "egress $/h", "requests")


def table(results: Mapping[str, Result]) -> str:
    """Returns a table with one line per policy, in the order given.

    Latencies are those of successful requests.
    """
    rows = [_COLUMNS] + [_row(policy, result) for policy, result in results.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(_pad(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for policy, result in results.items():
        if result.summary.reasons:
            why = ", ".join(f"{reason} {count}" for reason, count in result.summary.reasons.items())
            lines.append(f"failed under {policy}: {why}")
    return "\n".join(line.rstrip() for line in lines)


def _row(policy: str, result: Result) -> tuple[str, ...]:
    s = result.summary
    latencies = [_number(value, ".1f") for value in (s.mean_ms, s.p50_ms, s.p95_ms, s.p99_ms)]
    shares = [_number(value, ".1%") for value in (s.failed_share, s.remote_share)]
    return (policy, *latencies, *shares, _number(result.egress_usd_per_hour, ".6f"), str(s.requests))


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _number(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)


def policies_json(
    results: Mapping[str, Result], machine: Busyness | None = None, disturbed: bool = False
) -> str:
    """Returns the JSON object that the demo prints as its last line.

    A latency is null, never a number, when no request succeeded. So is what is not known of the
    machine.
    """
    keys = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "failed_share", "remote_share")
    policies = {}
    for policy, result in results.items():
        values = {key: getattr(result.summary, key) for key in keys}
        values["egress_usd_per_hour"] = result.egress_usd_per_hour
        policies[policy] = {
            key: None if math.isnan(value) else _rounded(value) for key, value in values.items()
        }
    document: dict[str, Any] = {"policies": policies}
    if machine is not None:
        busy = {"utilisation": machine.utilisation, "pressure": machine.pressure}
        document["machine"] = {key: None if x is None else round(x, 3) for key, x in busy.items()}
        document["disturbed"] = disturbed
    return json.dumps(document)


def _rounded(value: float) -> float:
    """Rounds to six significant digits."""
    return float(f"{value:.6g}")


def plot_cdf(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Writes a PNG of the share of all requests that were answered successfully within a latency.

    A curve that ends below 1 shows the share that failed.
    """
    # Imported here because only this function needs it and the import takes most of a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for policy, result in results.items():
        x, y = cdf(result.samples)
        if len(x):
            axes.step(x, y, where="post", label=f"{policy} (mean {result.summary.mean_ms:.0f} ms)")
    axes.set(xscale="log", xlabel="latency at the client, ms", ylabel="share of all requests", title=title)
    axes.set_ylim(0, 1)
    axes.grid(True, which="both", alpha=0.3)
    if axes.lines:
        axes.legend(loc="lower right")
    FigureCanvasAgg(figure).print_png(path)


def cdf(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Returns sorted latencies in ms and the share of all requests that took at most that long.

    Only successful requests have a latency, so the shares can end below 1.
    """
    latency = np.sort(samples.latency_ms[samples.ok])
    return latency, np.arange(1, len(latency) + 1) / max(1, len(samples))
