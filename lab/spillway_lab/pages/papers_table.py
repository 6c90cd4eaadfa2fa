"""The table of our figures beside those of the papers."""

from collections.abc import Sequence

from spillway_lab.findings.beside_papers import NOT_RUN, Beside
from spillway_lab.findings.verdicts import NAMES, interval
from spillway_lab.pages.blocks import Table


def table(found: Sequence[Beside]) -> Table:
    rows = tuple(
        (
            each.figure.says,
            f"{each.figure.paper}, {each.figure.where}",
            _with_unit(f"{each.figure.value:g}", each.figure.unit)
            + (", read off the plot" if each.figure.source == "plot" else ""),
            NOT_RUN if each.reached is None else _with_unit(interval(each.ours), each.figure.unit),
            _measured(each),
            each.words,
        )
        for each in found
    )
    return Table(("what", "paper", "theirs", "ours", "measured as", "outcome"), rows, numbers=False)


def _measured(each: Beside) -> str:
    measure = each.figure.measure
    if measure.fact is not None or measure.metric is None:
        return f"`{measure.fact}`"
    text = f"{NAMES[measure.metric]}, {measure.of}" + (f" over {measure.over}" if measure.over else "")
    return text + (f", in {each.scenario}" if each.scenario else "")


def _with_unit(text: str, unit: str) -> str:
    return text if text == "unknown" else f"{text} {unit}"
