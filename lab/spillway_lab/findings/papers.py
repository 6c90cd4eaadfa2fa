"""The papers' figures, which results are compared with: `lab/papers.yaml`."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from spillway_lab.report.statistics import Metric
from spillway_lab.scenario.application import Model, Positive, read_yaml
from spillway_lab.scenario.errors import InvalidInput, from_validation


class Measure(Model):
    """What is compared with a paper's figure: a figure of a policy, or a ratio, or a fact.

    Without a scenario, it is that of the experiment's scenarios that shows the most: papers say "up
    to".
    """

    metric: Metric | None = None
    of: str | None = None  # policy
    over: str | None = None  # policy; the measure is then a ratio
    fact: str | None = None  # a key of the run's facts
    scenario: str | None = None  # name of the runs, with * for any text: points of a sweep
    settled: bool = False  # of the end alone, when control loops have arrived

    @model_validator(mode="after")
    def _one_of_both(self) -> "Measure":
        if (self.fact is None) == (self.metric is None) or (self.metric is None) != (self.of is None):
            raise ValueError(
                f"metric {self.metric}, of {self.of}, fact {self.fact}; allowed: metric and of, or fact"
            )
        if self.over is not None and self.metric is None:
            raise ValueError(f"over: {self.over}; allowed only beside metric")
        if self.settled and self.metric is None:
            raise ValueError("settled: true; allowed only beside metric")
        return self


class Figure(Model):
    """One figure of a paper."""

    experiment: str
    paper: str
    where: str  # section, figure or table
    says: str  # what is compared with what, in a phrase
    value: Positive
    unit: str
    # text: the paper's text or a table has the number; plot: it is read off a plot
    source: Literal["text", "plot"] = "text"
    # Whether more is better, or less; `compare: false` where units or loads differ, so the figures
    # stand beside each other without a verdict.
    better: Literal["more", "less"] = "more"
    compare: bool = True
    measure: Measure


class _File(Model):
    figures: Annotated[list[Figure], Field(min_length=1)]


def load(path: Path, experiments: Collection[str]) -> list[Figure]:
    """Reads the figures.

    Raises InvalidInput for wrong keys, and for experiments that do not exist.
    """
    try:
        figures = _File.model_validate(read_yaml(path)).figures
    except ValidationError as error:
        raise from_validation(path, error) from error
    if problems := [
        f"{path}: figures.{number}.experiment: unknown {figure.experiment!r}; "
        f"allowed: {', '.join(sorted(experiments))}"
        for number, figure in enumerate(figures)
        if figure.experiment not in experiments
    ]:
        raise InvalidInput(problems)
    return figures
