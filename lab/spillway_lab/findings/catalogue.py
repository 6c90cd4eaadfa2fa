"""The experiments of `lab/experiments/`: one YAML file each, whose name is the experiment's id.

An experiment is a question, the scenarios that answer it, and how they are run. A sweep makes
variants of a scenario, one for each combination of its axes' points.

Simulated are the optimizer's baselines by their plans, and `spillway`, its variants and `papa-only`
in closed loop with hysteresis and PAPA. Curves and capacities are then those of the simulated
queues, not learned.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from spillway_lab.scenario.application import Model, Positive, read_yaml
from spillway_lab.scenario.errors import InvalidInput, from_validation

Kind = Literal["live", "simulated", "benchmark"]


class Point(Model):
    """One value of an axis. `set` maps keys of the scenario file to their values.

    Keys are joined by dots, and elements of lists have their number: `links.0.rtt_ms`.
    """

    at: float
    set: Annotated[dict[str, Any], Field(min_length=1)]


class Axis(Model):
    label: Annotated[str, Field(min_length=1)]  # with its unit
    points: Annotated[list[Point], Field(min_length=2)]


class Experiment(Model):
    """The content of one file."""

    title: str
    question: str
    kind: Kind
    papers: list[str] = Field(default_factory=list)  # the figures that it stands for
    # live and simulated: files, relative to this one; none yet: the experiment is listed as not run
    scenarios: list[Path] = Field(default_factory=list)
    # beside kind: live, files that are simulated too
    simulated: list[Path] = Field(default_factory=list)
    sweep: Annotated[list[Axis], Field(max_length=2)] = Field(default_factory=list)
    policy: str = "spillway"  # the one that the others are compared with
    baselines: list[str] = Field(default_factory=list)  # sweeps are drawn against the first
    # benchmark: run from the repository's root; its last line of output is one JSON object
    command: list[str] = Field(default_factory=list)
    order: float = 100.0  # place in the report; those of the same place are in the order of their ids
    minutes: Positive  # of all of its runs, on two cores
    shortfall: str = ""  # why a paper's figure is not reached, or why there is no run
    not_live: str = ""  # why there is no live run, beside simulated ones

    @model_validator(mode="after")
    def _of_its_kind(self) -> "Experiment":
        if problems := list(_kind_problems(self)):
            raise ValueError("; ".join(problems))
        return self


def _kind_problems(experiment: Experiment) -> Iterator[str]:
    if experiment.kind == "benchmark":
        if not experiment.command:
            yield "command: missing; allowed: the program and its arguments, as kind is benchmark"
        if experiment.scenarios or experiment.simulated or experiment.sweep:
            yield "scenarios, simulated, sweep: not allowed beside kind: benchmark"
        return
    if experiment.command:
        yield f"command: {experiment.command}; allowed only beside kind: benchmark"
    if experiment.simulated and (experiment.kind != "live" or experiment.sweep):
        yield "simulated: allowed only beside kind: live, without a sweep"
    if experiment.sweep and not experiment.baselines:
        yield "baselines: missing; allowed: at least one policy, as sweeps are drawn against the first"
    for key, paths in (("scenarios", experiment.scenarios), ("simulated", experiment.simulated)):
        names = [path.stem for path in paths]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{key}: {name!r} is there twice; allowed: files of different names"


class Variant(Model):
    """One scenario that an experiment runs: a file as it is, or one point of the sweep."""

    name: str
    scenario: Path
    kind: Kind
    at: tuple[float, ...] = ()  # the sweep's coordinates, one for each axis
    changes: dict[str, Any] = Field(default_factory=dict)


def load(path: Path) -> Experiment:
    """Reads one experiment. Raises InvalidInput that names file, key, value and what is allowed."""
    try:
        found = Experiment.model_validate(read_yaml(path))
    except ValidationError as error:
        raise from_validation(path, error) from error
    # The files are given relative to the experiment's file.
    given = {"scenarios": found.scenarios, "simulated": found.simulated}
    return found.model_copy(
        update={key: [path.parent / scenario for scenario in paths] for key, paths in given.items()}
    )


def load_all(folder: Path) -> dict[str, Experiment]:
    """Reads every experiment of a folder, by its id and in the report's order.

    Raises InvalidInput with all problems.
    """
    found, problems = {}, []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found[path.stem] = load(path)
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(problems)
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def variants(experiment: Experiment) -> list[Variant]:
    """Returns what an experiment runs: its scenarios, each at every point of the sweep."""
    if not experiment.sweep:
        given = [
            Variant(name=path.stem, scenario=path, kind=experiment.kind) for path in experiment.scenarios
        ]
        return given + [
            Variant(name=f"{path.stem}-simulated", scenario=path, kind="simulated")
            for path in experiment.simulated
        ]
    return [
        Variant(
            name="-".join([path.stem, *(f"{point.at:g}" for point in points)]),
            scenario=path,
            kind=experiment.kind,
            at=tuple(point.at for point in points),
            changes={key: value for point in points for key, value in point.set.items()},
        )
        for path in experiment.scenarios
        for points in product(*(axis.points for axis in experiment.sweep))
    ]


def runs(experiment: Experiment) -> int:
    """Returns how many runs an experiment has; 0 if it has no scenario yet."""
    return 1 if experiment.kind == "benchmark" else len(variants(experiment))


def changed(document: Any, changes: Mapping[str, Any], source: Path) -> Any:
    """Returns a copy of a YAML document with these keys set.

    Raises InvalidInput for a key that the document does not have: a sweep over it changes nothing.
    """
    for key, value in changes.items():
        document = _set(document, key.split("."), value, f"{source}: sweep: {key}")
    return document


def _set(document: Any, key: list[str], value: Any, where: str) -> Any:
    if not key:
        return value
    first, rest = key[0], key[1:]
    if isinstance(document, list) and first.isdigit() and int(first) < len(document):
        number = int(first)
        return [*document[:number], _set(document[number], rest, value, where), *document[number + 1 :]]
    if isinstance(document, dict) and first in document:
        return document | {first: _set(document[first], rest, value, where)}
    keys = (
        document if isinstance(document, dict) else range(len(document if isinstance(document, list) else ()))
    )
    raise InvalidInput([f"{where}: no such key {first!r}; allowed: {', '.join(map(str, keys)) or 'none'}"])
