"""The runs of a sweep as blocks: one picture and a table of all points. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from spillway_lab.findings.catalogue import Variant
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.verdicts import interval
from spillway_lab.pages import pictures, setup
from spillway_lab.pages.blocks import Block, Picture, Table, Text
from spillway_lab.pages.pictures import Styles
from spillway_lab.pages.run_blocks import cell, machine
from spillway_lab.report.statistics import UNKNOWN, Metric

_COMPARED: tuple[Metric, ...] = ("mean_ms", "egress_usd_per_hour")


def blocks(chapter: Chapter, look: Styles) -> Iterator[Block]:
    """Yields one picture of all points, and a table of them."""
    experiment, axes = chapter.experiment, chapter.experiment.sweep
    ran = [variant for variant in chapter.variants if variant.name in chapter.runs]
    if not ran:
        return
    if (scenario := chapter.scenarios.get(ran[0].name)) is not None:
        yield Text("The set-up, before the sweep changes it:")
        yield from setup.blocks(scenario, chapter.runs[ran[0].name].setting.measured_seconds)
    mine = experiment.policy
    if len(axes) == 1:
        lines = {
            other: [chapter.runs[variant.name].pair(mine, other, "mean_ms").ratio for variant in ran]
            for other in experiment.baselines
        }
        drawn = pictures.ratios([variant.at[0] for variant in ran], lines, axes[0].label, look)
        yield Picture(f"{chapter.id}-sweep", drawn, f"Ratio of mean latencies over {axes[0].label}.")
    elif (values := _grid(chapter)) is not None:
        x, y = ([point.at for point in axis.points] for axis in axes)
        title = f"mean latency of {experiment.baselines[0]} over that of {mine}"
        drawn = pictures.grid(x, y, values, (axes[0].label, axes[1].label, title))
        yield Picture(f"{chapter.id}-sweep", drawn, f"Map: {title}.")
    yield _table(chapter, ran)
    first = chapter.runs[ran[0].name]
    yield Text(f"{machine(first)} The first point was run by `{first.setting.command}`.")


def _table(chapter: Chapter, ran: Sequence[Variant]) -> Block:
    """Returns a row for each point: means of all policies, and what the others have over ours."""
    mine, others = chapter.experiment.policy, chapter.experiment.baselines
    columns = (
        *(axis.label for axis in chapter.experiment.sweep),
        *(f"{policy}: mean, ms" for policy in (mine, *others)),
        *(f"{other}: {word}" for other in others for word in ("mean ×", "egress ×", "failed, %")),
    )
    rows = []
    for variant in ran:
        figures = chapter.runs[variant.name]
        cells = [f"{at:g}" for at in variant.at]
        cells += [cell(figures.policies.get(policy), "mean_ms", bounds=False) for policy in (mine, *others)]
        for other in others:
            cells += [interval(figures.pair(mine, other, metric).ratio) for metric in _COMPARED]
            cells.append(cell(figures.policies.get(other), "failed_share", bounds=False))
        rows.append(tuple(cells))
    return Table(columns, tuple(rows))


def _grid(chapter: Chapter) -> np.ndarray | None:
    """Returns ratios of shape (y, x), NaN where unknown; None if all are."""
    x, y = ([point.at for point in axis.points] for axis in chapter.experiment.sweep)
    values = np.full((len(y), len(x)), np.nan)
    baseline = chapter.experiment.baselines[0]
    for variant in chapter.variants:
        figures = chapter.runs.get(variant.name)
        found = figures.pair(chapter.experiment.policy, baseline, "mean_ms").ratio if figures else UNKNOWN
        if found.value is not None:
            values[y.index(variant.at[1]), x.index(variant.at[0])] = found.value
    return values if np.isfinite(values).any() else None
