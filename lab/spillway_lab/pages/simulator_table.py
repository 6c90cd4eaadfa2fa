"""Simulated figures beside live ones, of every scenario that ran both ways. Pure."""

from collections.abc import Iterator, Sequence
from statistics import median

from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import PolicyFigures
from spillway_lab.findings.verdicts import NAMES
from spillway_lab.pages.blocks import Block, Heading, Table, Text
from spillway_lab.pages.run_blocks import cell
from spillway_lab.report.statistics import Metric

_ERRORS: tuple[Metric, ...] = ("mean_ms", "p99_ms", "egress_usd_per_hour")
_LATENCIES: tuple[Metric, ...] = ("mean_ms", "p99_ms")


def blocks(chapters: Sequence[Chapter]) -> Iterator[Block]:
    """Yields the section, or nothing if no scenario ran both ways."""
    found = list(_pairs(chapters))
    if not found:
        return
    yield Heading(2, "Simulated beside live", "simulated-beside-live")
    yield Text(
        "The same scenario files, policies and load. An error is the simulated figure over the live one, less one. It is "
        "left out where the live figure is 0 or unknown, and for latencies where requests failed. A simulation has no "
        "proxies and no machine, and its curves are those of its queues, not learned."
    )
    errors = {
        metric: [e for _, _, a, b in found if (e := error(a, b, metric)) is not None] for metric in _ERRORS
    }
    middle = (
        f"{NAMES[metric]} {100 * median(map(abs, known)):.0f} %" for metric, known in errors.items() if known
    )
    yield Text(f"The median error, either way: {', '.join(middle) or 'unknown'}.", strong=True)
    rows = tuple(
        (name, policy, cell(live, "mean_ms"), cell(simulated, "mean_ms"), *_errors(live, simulated))
        for name, policy, live, simulated in found
    )
    columns = ("scenario", "policy", "live mean, ms", "simulated mean, ms", "error", "of p99", "of egress")
    yield Table(columns, rows, numbers=False)


def _pairs(chapters: Sequence[Chapter]) -> Iterator[tuple[str, str, PolicyFigures, PolicyFigures]]:
    """Yields scenario, policy, and its live and its simulated figures."""
    for chapter in chapters:
        for name, live in chapter.runs.items():
            simulated = chapter.runs.get(f"{name}-simulated")
            if live.setting.kind != "live" or simulated is None:
                continue
            about = name + (", disturbed" if live.disturbed else "")
            for policy, its in live.policies.items():
                if policy in simulated.policies:
                    yield about, policy, its, simulated.policies[policy]


def error(live: PolicyFigures, simulated: PolicyFigures, metric: Metric) -> float | None:
    """Returns the relative error of the simulated figure; None if it cannot be compared."""
    truth, found = live.figures[metric].value, simulated.figures[metric].value
    if truth is None or found is None or truth == 0:
        return None
    if metric in _LATENCIES and any(each.figures["failed_share"].value for each in (live, simulated)):
        return None
    return found / truth - 1


def _errors(live: PolicyFigures, simulated: PolicyFigures) -> Iterator[str]:
    for metric in _ERRORS:
        found = error(live, simulated, metric)
        yield "-" if found is None else f"{100 * found:+.0f} %"
