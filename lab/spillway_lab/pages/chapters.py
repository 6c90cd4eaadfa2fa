"""The report as blocks: a chapter per experiment, after a summary. Pure."""

from collections.abc import Iterator, Sequence

from spillway_lab.findings import catalogue
from spillway_lab.findings.catalogue import Experiment
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.verdicts import NAMES, interval, judge
from spillway_lab.pages import papers_table, pictures, run_blocks, simulator_table, sweep_blocks
from spillway_lab.pages.blocks import Block, Command, Heading, Table, Text
from spillway_lab.pages.pictures import Styles
from spillway_lab.report.statistics import Metric
from spillway_lab.scenario.variants import VARIANTS

_SHOWN: tuple[Metric, ...] = ("mean_ms", "egress_usd_per_hour")  # in the summary


def blocks(chapters: Sequence[Chapter], method: Sequence[str]) -> Iterator[Block]:
    """Yields the whole report. `method` are the paragraphs that say how it was measured."""
    yield Heading(1, "Results")
    for text in method:
        yield Text(text)
    yield Heading(2, "Summary", "summary")
    yield Text(
        "Beside the first baseline of each experiment. The factor is the baseline's figure over ours: above 1, ours is "
        "better. Of several scenarios or points of a sweep, it is the range."
    )
    rows = tuple(
        (
            each.experiment.title,
            each.state,
            _beside(each),
            *(_headline(each, m) for m in _SHOWN),
            _reached(each),
        )
        for each in chapters
    )
    links = tuple(each.id for each in chapters)
    columns = ("experiment", "run", "beside", *(NAMES[m] for m in _SHOWN), "papers' figures")
    yield Table(columns, rows, numbers=False, links=links)
    for chapter in chapters:
        yield from _chapter(chapter, pictures.styles(_drawn(chapter.experiment)))
    yield from simulator_table.blocks(chapters)


def _drawn(experiment: Experiment) -> list[str]:
    """Returns all policies, in the order of their looks: ours, its baselines, and the others."""
    return list(dict.fromkeys([experiment.policy, *experiment.baselines, *VARIANTS]))


def _reached(chapter: Chapter) -> str:
    words = [each.words for each in chapter.beside]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "none"


def _beside(chapter: Chapter) -> str:
    found = {chapter.baseline_of(figures) for figures in chapter.runs.values()} - {""}
    return ", ".join(sorted(found)) or "-"


def _headline(chapter: Chapter, metric: Metric) -> str:
    """Returns the outcome of all runs by one metric, and the factor or the range of factors."""
    policy = chapter.experiment.policy
    runs = [(figures, chapter.baseline_of(figures)) for figures in chapter.runs.values()]
    runs = [(figures, other) for figures, other in runs if other]
    if not runs:
        return "-"
    outcomes = [judge(figures, policy, other, metric).outcome for figures, other in runs]
    ratios = [figures.pair(policy, other, metric).ratio for figures, other in runs]
    if len(runs) == 1:
        return outcomes[0] if ratios[0].value is None else f"{outcomes[0]}: {interval(ratios[0])}\u00a0×"
    counted = [f"{word} in {outcomes.count(word)}" for word in dict.fromkeys(outcomes)]
    known = [ratio.value for ratio in ratios if ratio.value is not None]
    factors = f": {min(known):.3g} to {max(known):.3g}\u00a0×" if known else ""
    return f"{', '.join(counted)} of {len(runs)}{factors}"


def _chapter(chapter: Chapter, look: Styles) -> Iterator[Block]:
    experiment = chapter.experiment
    yield Heading(2, experiment.title, chapter.id)
    yield Text(experiment.question)
    papers = f" Of the papers: {', '.join(experiment.papers)}." if experiment.papers else ""
    kinds = dict.fromkeys(variant.kind for variant in chapter.variants) or [experiment.kind]
    yield Text(f"Experiment `{chapter.id}`, {' and '.join(kinds)}.{papers}")
    if chapter.stale:
        names = ", ".join(chapter.stale)
        yield Text(f"Stale: inputs have changed since these runs: {names}.", strong=True)
    for problem in chapter.problems:
        yield Text(f"Not read: {problem}", strong=True)
    if not chapter.runs and chapter.facts is None:
        yield Text(f"Not run. {experiment.shortfall}".strip(), strong=True)
    elif experiment.not_live and not any(each.setting.kind == "live" for each in chapter.runs.values()):
        yield Text(f"Not run live. {experiment.not_live}", strong=True)
    if chapter.beside:
        yield papers_table.table(chapter.beside)
        yield from _why_not(chapter)
    if chapter.facts is not None:
        yield run_blocks.facts(chapter.facts)
    if experiment.sweep:
        yield from sweep_blocks.blocks(chapter, look)
    else:
        for name, figures in chapter.runs.items():
            yield from run_blocks.blocks(chapter, name, figures, look)
    if catalogue.runs(experiment):
        there = bool(chapter.runs) or chapter.facts is not None
        yield Text("To run it again:" if there else "To run it:")
        yield Command(f"make experiments ONLY={chapter.id}" + (" AGAIN=1" if there else ""))


def _why_not(chapter: Chapter) -> Iterator[Block]:
    found, why = {each.reached for each in chapter.beside}, chapter.experiment.shortfall
    if "not reached" in found or (why and "not told apart" in found):
        yield Text(f"Where a figure is not reached: {why or 'the reason is not known yet.'}")
    elif "not told apart" in found:
        yield Text("A figure is not told apart from the paper's if its interval contains the paper's.")
