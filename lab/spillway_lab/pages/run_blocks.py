"""One run of a scenario as blocks: set-up, figures, verdicts, pictures, machine. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import PolicyFigures, RunFigures
from spillway_lab.findings.verdicts import NAMES, interval, judge
from spillway_lab.pages import pictures, setup
from spillway_lab.pages.blocks import Block, Heading, Picture, Table, Text
from spillway_lab.pages.pictures import Styles
from spillway_lab.report import resampling
from spillway_lab.report.statistics import Estimate, Metric

_METRICS: tuple[Metric, ...] = tuple(NAMES)
_SAID: tuple[Metric, ...] = ("mean_ms", "egress_usd_per_hour")
_COLUMNS = (
    "policy",
    "mean, ms",
    "p50, ms",
    "p90, ms",
    "p99, ms",
    "failed, %",
    "egress, USD/h",
    "requests",
)


def blocks(chapter: Chapter, name: str, figures: RunFigures, look: Styles) -> Iterator[Block]:
    run = figures.setting
    if len(chapter.variants) > 1:
        yield Heading(3, f"{chapter.experiment.title}: {name}")
    if run.question:
        yield Text(run.question)
    scenario = chapter.scenarios.get(name)
    events, changes = {}, False
    if scenario is not None:
        yield from setup.blocks(scenario, run.measured_seconds)
        events, changes = setup.events(scenario), bool(scenario.document.events)
    yield _policies(figures)
    yield from _verdicts(chapter, figures)
    if figures.settled:
        begin_s = run.measured_seconds - figures.settled.setting.measured_seconds
        yield Text(f"From {begin_s:g} s on, when control loops have arrived:")
        yield _policies(figures.settled)
        yield from _sentences(chapter, figures.settled, ("mean_ms",))
    cdfs = {policy: each.cdf for policy, each in figures.policies.items()}
    picture = f"{chapter.id}-{name}" if name != chapter.id else name
    about = f"Share of requests answered within a latency, by policy, in {name}."
    yield Picture(f"{picture}-cdf", pictures.cdfs(cdfs, look), about)
    if run.kind == "live" or changes or scenario is None or len(scenario.document.load.measure.plan) > 1:
        over_time = {policy: each.over_time for policy, each in figures.policies.items()}
        drawn = pictures.times(over_time, "mean latency, ms", events, look)
        yield Picture(f"{picture}-time", drawn, f"Mean latency over time, by policy, in {name}.")
    series = dict.fromkeys(key for each in figures.policies.values() for key in each.series)
    for number, key in enumerate(series):
        lines = {policy: each.series[key] for policy, each in figures.policies.items() if key in each.series}
        drawn = pictures.times(lines, key, events, look)
        yield Picture(f"{picture}-series-{number}", drawn, f"{key} over time, by policy, in {name}.")
    yield Text(machine(figures))
    if (table := facts(run.facts)).rows:
        yield table
    yield Text(f"Run by `{run.command}`.")


def _verdicts(chapter: Chapter, figures: RunFigures) -> Iterator[Block]:
    """Yields the verdict about the mean in a sentence, and all verdicts as a table."""
    policy, other = chapter.experiment.policy, chapter.baseline_of(figures)
    if not other:
        return
    yield from _sentences(chapter, figures, _SAID)
    baselines = [each for each in chapter.experiment.baselines if each in figures.policies]
    rest = [each for each in figures.policies if each != policy and each not in baselines]
    rows = tuple(
        (each, *(_outcome(figures, policy, each, metric) for metric in _METRICS)) for each in baselines + rest
    )
    yield Text(f"How `{policy}` is beside the others, and their figures over those of `{policy}`:")
    columns = tuple(NAMES[metric].removesuffix(" latency") for metric in _METRICS)
    yield Table(("beside", *columns), rows, numbers=False)
    missing = [each for each in chapter.experiment.baselines if each not in figures.policies]
    if missing:
        yield Text(f"Not run in this scenario: {', '.join(missing)}.")


def _sentences(chapter: Chapter, figures: RunFigures, metrics: Sequence[Metric]) -> Iterator[Block]:
    """Yields the verdicts about the first baseline in one text; nothing without a baseline."""
    policy, other = chapter.experiment.policy, chapter.baseline_of(figures)
    if other:
        found = [judge(figures, policy, other, metric).sentence for metric in metrics]
        yield Text(" ".join(dict.fromkeys(found)), strong=True)


def _outcome(figures: RunFigures, policy: str, other: str, metric: Metric) -> str:
    """Returns the outcome, and by what factor the other policy's figure is that of the first."""
    outcome = judge(figures, policy, other, metric).outcome
    ratio = figures.pair(policy, other, metric).ratio
    return outcome if ratio.value is None else f"{outcome}: {interval(ratio)}\u00a0×"


def _policies(figures: RunFigures) -> Block:
    rows = tuple(
        (
            policy,
            *(cell(each, metric) for metric in _METRICS),
            f"{each.requests} in {each.rounds} rounds",
        )
        for policy, each in figures.policies.items()
    )
    return Table(_COLUMNS, rows)


def cell(each: PolicyFigures | None, metric: Metric, bounds: bool = True) -> str:
    """Returns a figure, with its interval unless `bounds` is false.

    One that failed requests have a part in is marked as a lower bound.
    """
    if each is None:
        return "not run"
    found = each.figures[metric] if bounds else Estimate(each.figures[metric].value)
    text = interval(found, percent=metric == "failed_share")
    failed = each.figures["failed_share"].value or 0.0
    quantile = resampling.QUANTILES.get(metric)
    in_it = failed > 0 and (metric == "mean_ms" or (quantile is not None and quantile > 1 - failed))
    return f"≥ {text}" if in_it and text != "unknown" else text


def facts(found: Mapping[str, Any]) -> Table:
    """Returns a table of the facts; those in objects have dotted keys. Lists are left out."""
    return Table(("figure", "value"), tuple((f"`{key}`", _fact(value)) for key, value in _flat(found)))


def _flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def _fact(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine(figures: RunFigures) -> str:
    """Returns how busy the machine was, and when the run was made, in sentences."""
    run = figures.setting
    began = run.started.strftime("%Y-%m-%d %H:%M UTC")
    if run.kind == "simulated":
        seed = f" with seed {run.seed}" if run.seed is not None else ""
        return f"Simulated{seed} on {began}: {run.measured_seconds:g} s in each round."
    stretched = (
        f" It was stretched {run.time_scale:g} times; all times here are those of the scenario."
        if run.time_scale != 1
        else ""
    )
    state = (
        f"{figures.disturbed} of {run.rounds} rounds were disturbed" if figures.disturbed else "undisturbed"
    )
    return (
        f"Live on {began}, {run.measured_seconds:g} s in each round, on {run.cores} "
        f"cores: utilisation {_range(run.utilisation)}, pressure {_range(run.pressure)}, {state}.{stretched}"
    )


def _range(shares: tuple[float, float] | None) -> str:
    if shares is None:
        return "not measured"
    low, high = shares
    return f"{high:.0%}" if round(low, 2) == round(high, 2) else f"{low:.0%} to {high:.0%}"
