"""The figures of experiments that are committed: one JSON file each, `docs/results/figures/E.json`.

Samples are too large for that. With their figures, the report can be made again without them, and
an experiment that runs again changes its own chapter alone. Figures are rounded to six digits.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import NO_POINTS, Pair, PolicyFigures, RunFigures
from spillway_lab.scenario.errors import InvalidInput, from_validation

_DIGITS = 6


@dataclass(frozen=True)
class Kept:
    """What is kept of one experiment. `digests`: of the inputs of each run, or of a benchmark."""

    runs: Mapping[str, RunFigures] = field(default_factory=dict)  # by the variant's name
    facts: dict[str, Any] | None = None  # of a benchmark
    digests: Mapping[str, str] = field(default_factory=dict)


_KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


def read(folder: Path, experiment: str) -> Kept:
    """Reads what is kept of an experiment; empty if nothing is.

    Raises InvalidInput that names the file and the key.
    """
    path = _file(folder, experiment)
    try:
        return _KEPT.validate_json(path.read_bytes())
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise InvalidInput([f"{path}: cannot be read: {error.strerror}"]) from error
    except ValidationError as error:
        raise from_validation(path, error) from error


def write(folder: Path, chapters: list[Chapter]) -> None:
    """Writes the figures of each chapter that has any."""
    folder.mkdir(parents=True, exist_ok=True)
    for chapter in chapters:
        if chapter.runs or chapter.facts is not None:
            _file(folder, chapter.id).write_text(_text(chapter))


def _file(folder: Path, experiment: str) -> Path:
    return folder / f"{experiment}.json"


def _text(chapter: Chapter) -> str:
    """Returns JSON with a line for each run, so that a changed run is a changed line."""
    facts = dict(chapter.facts) if chapter.facts is not None else None
    kept = Kept({name: _shown(chapter, each) for name, each in chapter.runs.items()}, facts, chapter.digests)
    document = _rounded(_KEPT.dump_python(kept, mode="json"))
    for run in document["runs"].values():
        if run["settled"] is None:  # as most have it
            del run["settled"]
    runs = ",\n".join(f"{json.dumps(name)}: {json.dumps(run)}" for name, run in document["runs"].items())
    return (
        f'{{"facts": {json.dumps(document["facts"])},\n"digests": {json.dumps(document["digests"])},\n'
        f'"runs": {{\n{runs}\n}}}}\n'
    )


def _shown(chapter: Chapter, figures: RunFigures) -> RunFigures:
    """Returns what the report takes of a run: its comparisons, and lines unless it is a point."""
    pairs: dict[str, dict[str, Any]] = {}
    for policy, other, its in _compared(chapter, figures):
        pairs.setdefault(policy, {})[other] = its
    policies = figures.policies if not chapter.experiment.sweep else _without_lines(figures)
    settled = figures.settled and _shown(chapter, figures.settled)
    if settled:
        settled = replace(settled, policies=_without_lines(settled))
    return replace(figures, policies=policies, pairs=pairs, settled=settled)


def _without_lines(figures: RunFigures) -> Mapping[str, PolicyFigures]:
    return {
        name: replace(each, cdf=NO_POINTS, over_time=NO_POINTS, series={})
        for name, each in figures.policies.items()
    }


def _compared(chapter: Chapter, figures: RunFigures) -> Iterator[tuple[str, str, Mapping[Any, Pair]]]:
    """Yields the pairs of the experiment's policy, and those that are beside a paper's figure."""
    measures = [each.figure.measure for each in chapter.beside]
    of_papers = {(measure.over, measure.of) for measure in measures}
    for policy, others in figures.pairs.items():
        for other, its in others.items():
            if policy == chapter.experiment.policy or (policy, other) in of_papers:
                yield policy, other, its


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
