"""The report as blocks: a chapter per experiment, after a summary. Pure."""

from collections.abc import Iterator, Sequence

from spillway_lab.findings import beside_papers, catalogue, pictures, run_blocks, sweep_blocks
from spillway_lab.findings.blocks import Block, Command, Heading, Table, Text
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.pictures import Styles
from spillway_lab.findings.verdicts import judge


def blocks(chapters: Sequence[Chapter], method: Sequence[str]) -> Iterator[Block]:
    """Yields the whole report. `method` are the paragraphs that say how it was measured."""
    yield Heading(1, "Results")
    for text in method:
        yield Text(text)
    yield Heading(2, "Summary", "summary")
    rows = tuple((each.experiment.title, each.state, _reached(each), _headline(each)) for each in chapters)
    links = tuple(each.id for each in chapters)
    yield Table(("experiment", "run", "papers' figures", "mean latency"), rows, numbers=False, links=links)
    policies = sorted({policy for each in chapters for f in each.runs.values() for policy in f.policies})
    for chapter in chapters:
        mine = [chapter.experiment.policy, *(p for p in policies if p != chapter.experiment.policy)]
        yield from _chapter(chapter, pictures.styles(mine))


def _reached(chapter: Chapter) -> str:
    words = [each.words for each in chapter.beside]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "none to compare with"


def _headline(chapter: Chapter) -> str:
    """Returns the verdict about the mean; of several scenarios, how many have which outcome."""
    if not chapter.runs:
        return "-"
    policy = chapter.experiment.policy
    found = [
        judge(figures, policy, chapter.baseline_of(figures), "mean_ms")
        for figures in chapter.runs.values()
        if chapter.baseline_of(figures)
    ]
    if len(found) == 1:
        return found[0].sentence
    outcomes = [each.outcome for each in found]
    counted = [f"{word} in {outcomes.count(word)}" for word in dict.fromkeys(outcomes)]
    return f"{', '.join(counted)} of {len(found)}" if found else "-"


def _chapter(chapter: Chapter, look: Styles) -> Iterator[Block]:
    experiment = chapter.experiment
    yield Heading(2, experiment.title, chapter.id)
    yield Text(experiment.question)
    papers = f" Of the papers: {', '.join(experiment.papers)}." if experiment.papers else ""
    yield Text(f"Experiment `{chapter.id}`, {experiment.kind}.{papers}")
    if chapter.stale:
        names = ", ".join(chapter.stale)
        yield Text(f"Stale: inputs have changed since these runs: {names}.", strong=True)
    for problem in chapter.problems:
        yield Text(f"Not read: {problem}", strong=True)
    if not chapter.runs and chapter.facts is None:
        yield Text(f"Not run. {experiment.shortfall}".strip(), strong=True)
    if chapter.beside:
        yield beside_papers.table(chapter.beside)
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
    missed = [each for each in chapter.beside if each.reached in ("not reached", "not told apart")]
    if missed:
        why = chapter.experiment.shortfall or "the reason is not known yet."
        yield Text(f"Where a figure is not reached: {why}")
