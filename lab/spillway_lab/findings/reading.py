"""Reads what the report is made of: experiments, papers' figures, and results.

The results of experiment E and variant V are in `<results>/E/V/`: `run.json` and samples, or
`facts.json` of a benchmark. `inputs.json` beside them says which inputs they are of. What has no
results there is taken from the figures that are kept of earlier runs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway_lab.findings import beside_papers, catalogue, gathered, inputs, kept, papers, reaction
from spillway_lab.findings.catalogue import Experiment, Variant
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import RunFigures
from spillway_lab.findings.kept import Kept
from spillway_lab.report import results
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario

FACTS = "facts.json"


def chapters(experiments: Path, figures: Path, found: Path, earlier: Path) -> list[Chapter]:
    """Returns a chapter for each experiment: its results in `found`, else its figures in `earlier`.

    Raises InvalidInput if the experiments or the papers' figures are wrong. Results that cannot be
    read are problems of their chapter and stop no other.
    """
    known = catalogue.load_all(experiments)
    beside = papers.load(figures, known)
    return [
        chapter(name, experiment, [figure for figure in beside if figure.experiment == name], found, earlier)
        for name, experiment in known.items()
    ]


def chapter(
    name: str, experiment: Experiment, figures: list[papers.Figure], found: Path, earlier: Path
) -> Chapter:
    variants = catalogue.variants(experiment)
    scenarios = _scenarios(variants)
    problems: list[str] = []
    there = _kept(earlier, name, problems)
    runs, facts, digests = dict(there.runs), there.facts, dict(there.digests)
    if experiment.kind == "benchmark" and (new := _facts(found / name, problems)) is not None:
        facts, digests[name] = new, _digest(found / name)
    for variant in variants:
        its = found / name / variant.name
        if run := _run(its, scenarios.get(variant.name), problems):
            runs[variant.name], digests[variant.name] = run, _digest(its)
    runs = {variant.name: runs[variant.name] for variant in variants if variant.name in runs}
    names = list(runs) if facts is None else [name]
    digests = {each: digests[each] for each in names if digests.get(each)}
    current = _current(name, experiment, variants)
    return Chapter(
        id=name,
        experiment=experiment,
        variants=variants,
        scenarios=scenarios,
        runs=runs,
        facts=facts,
        digests=digests,
        beside=[beside_papers.beside(figure, runs, facts) for figure in figures],
        stale=[each for each, digest in digests.items() if digest != current.get(each)],
        problems=problems,
    )


def _kept(folder: Path, name: str, problems: list[str]) -> Kept:
    try:
        return kept.read(folder, name)
    except InvalidInput as error:
        problems += error.problems
        return Kept()


def _run(folder: Path, scenario: Scenario | None, problems: list[str]) -> RunFigures | None:
    """Returns the run of a folder; None if there is none, or if it cannot be read."""
    if not (folder / results.FILE).exists():
        return None
    try:
        run, samples = results.read(folder)
        if scenario is None:
            return gathered.summarised(run, samples)
        settled_s = scenario.document.load.measure.settled_seconds
        return gathered.summarised(run, samples, reaction.facts(run, scenario), settled_s)
    except InvalidInput as error:
        problems += [problem.replace(f"{folder.parent}/", "") for problem in error.problems]
        return None


def _digest(folder: Path) -> str:
    """Returns the digest of the inputs that results are of; empty if it is unknown."""
    stamp = inputs.stamp(folder)
    return "" if stamp is None else stamp.digest


def _current(name: str, experiment: Experiment, variants: list[Variant]) -> dict[str, str]:
    """Returns the digests of the inputs as they are now; those that cannot be read have none."""
    if experiment.kind == "benchmark":
        return {name: inputs.of_benchmark(experiment).digest}
    found = {}
    for variant in variants:
        try:
            found[variant.name] = inputs.of_variant(variant).digest
        except InvalidInput:
            continue  # the driver names the problem when it runs the experiment
    return found


def _scenarios(variants: list[Variant]) -> Mapping[str, Scenario]:
    """Returns the scenarios that can be read, as their files have them before a sweep."""
    found = {}
    for variant in variants:
        try:
            found[variant.name] = scenario.load(variant.scenario)
        except InvalidInput:
            continue  # the driver names the problem when it runs the experiment
    return found


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
