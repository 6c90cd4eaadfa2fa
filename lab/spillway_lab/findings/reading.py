"""Reads what the report is made of: experiments, papers' figures, and results in their folders.

The results of experiment E and variant V are in `<results>/E/V/`: `run.json` and samples, or
`facts.json` of a benchmark. `inputs.json` beside them says which inputs they are of.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spillway_lab.findings import beside_papers, catalogue, gathered, inputs, papers, reaction
from spillway_lab.findings.catalogue import Experiment, Variant
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import RunFigures
from spillway_lab.report import results
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario

FACTS = "facts.json"


def chapters(experiments: Path, figures: Path, found: Path) -> list[Chapter]:
    """Returns a chapter for each experiment.

    Raises InvalidInput if the experiments or the papers' figures are wrong. Results that cannot be
    read are problems of their chapter and stop no other.
    """
    known = catalogue.load_all(experiments)
    beside = papers.load(figures, known)
    return [
        chapter(name, experiment, [figure for figure in beside if figure.experiment == name], found)
        for name, experiment in known.items()
    ]


def chapter(name: str, experiment: Experiment, figures: list[papers.Figure], found: Path) -> Chapter:
    variants = catalogue.variants(experiment)
    runs, stale, problems = _runs(variants, found / name)
    scenarios = _scenarios(variants)
    runs = {each: _with_reaction(figures, scenarios.get(each)) for each, figures in runs.items()}
    facts = None
    if experiment.kind == "benchmark":
        facts = _facts(found / name, problems)
        if facts is not None and _is_stale(found / name, inputs.of_benchmark(experiment).digest):
            stale.append(name)
    return Chapter(
        id=name,
        experiment=experiment,
        variants=variants,
        scenarios=scenarios,
        runs=runs,
        facts=facts,
        beside=[beside_papers.beside(figure, runs, facts) for figure in figures],
        stale=stale,
        problems=problems,
    )


def _runs(variants: list[Variant], folder: Path) -> tuple[dict[str, RunFigures], list[str], list[str]]:
    """Returns runs by variant, the names of those with other inputs, and what cannot be read."""
    runs: dict[str, RunFigures] = {}
    stale, problems = [], []
    for variant in variants:
        its = folder / variant.name
        if not (its / results.FILE).exists():
            continue
        try:
            runs[variant.name] = gathered.read(its)
            if _is_stale(its, inputs.of_variant(variant).digest):
                stale.append(variant.name)
        except InvalidInput as error:
            problems += [problem.replace(f"{folder}/", "") for problem in error.problems]
    return runs, stale, problems


def _is_stale(folder: Path, digest: str) -> bool:
    stamp = inputs.stamp(folder)
    return stamp is not None and stamp.digest != digest


def _scenarios(variants: list[Variant]) -> Mapping[str, Scenario]:
    """Returns the scenarios that can be read, as their files have them before a sweep."""
    found = {}
    for variant in variants:
        try:
            found[variant.name] = scenario.load(variant.scenario)
        except InvalidInput:
            continue  # the driver names the problem when it runs the experiment
    return found


def _with_reaction(figures: RunFigures, scenario: Scenario | None) -> RunFigures:
    more = reaction.facts(figures.run, scenario) if scenario else {}
    return replace(figures, run=replace(figures.run, facts={**figures.run.facts, **more}))


def _facts(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    path = folder / FACTS
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        problems.append(f"{FACTS}: cannot be read: {error}")
        return None
    if not isinstance(facts, dict):
        problems.append(f"{FACTS}: must be one JSON object; got {type(facts).__name__}")
        return None
    return facts
