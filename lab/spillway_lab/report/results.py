"""Results of a scenario in a folder: `run.json`, and one `.npz` file of samples per round.

Live runs and simulated runs have the same format, so that one report shows both. All times are
those of the scenario: a run that `time_scale` stretched is written as if it had not been.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

from spillway_lab.render import files
from spillway_lab.report.round_samples import RoundSamples, packed, read_samples
from spillway_lab.scenario.errors import InvalidInput, from_validation

FILE = "run.json"
_CHECKS = ConfigDict(extra="forbid", strict=True)

Kind = Literal["live", "simulated"]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1, max_length=256)]
FileName = Annotated[str, Field(pattern=r"^[^/\\]+\.npz$")]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# (seconds since the round began, value); a value that was not measured is None
Series = tuple[tuple[Finite, Finite | None], ...]


@dataclass(frozen=True)
class Machine:
    """How busy the machine was while a round was measured; None where it was not measured."""

    cores: Annotated[int, Field(ge=1)]
    utilisation: Share | None  # busy share of all cores
    pressure: Share | None  # share of the time in which some process waited for a core
    # Seconds per second that threads that serve requests waited for a core.
    run_delay: Annotated[float, Field(ge=0)] | None = None

    __pydantic_config__ = _CHECKS


@dataclass(frozen=True)
class Round:
    """One policy under the scenario's load, once."""

    policy: Name
    repetition: Count  # rounds of all policies with the same number ran beside each other
    samples: FileName
    egress_usd_per_hour: NotNegative | None  # None: unknown
    sent: Count  # requests of the measured part
    failed: Count
    machine: Machine
    disturbed: bool  # the machine was too busy for a conclusion
    series: dict[Name, Series] = field(default_factory=dict)

    __pydantic_config__ = _CHECKS


@dataclass(frozen=True)
class Run:
    """One scenario under several policies."""

    scenario: Name
    question: str
    kind: Kind
    time_scale: Positive  # by how much the run was stretched; 1: not at all
    seed: int | None
    command: Name  # runs it again
    started: AwareDatetime
    clusters: Names
    requests: Names  # class ids
    measured_seconds: Positive  # of each round, in scenario time
    rounds: tuple[Round, ...]
    facts: dict[Name, Any] = field(default_factory=dict)  # JSON values, for example a predicted ratio

    __pydantic_config__ = _CHECKS


_RUN: TypeAdapter[Run] = TypeAdapter(Run)


def write(folder: Path, run: Run, samples: Sequence[RoundSamples]) -> None:
    """Writes a run. `samples` are those of `run.rounds`, in their order.

    `run.json` is removed first and written last, so a folder with that file is complete. Raises
    InvalidInput that names the file and the key; nothing is written then. Raises LabError when a
    file cannot be written.
    """
    path = folder / FILE
    text = _RUN.dump_json(run, indent=1, fallback=_plain, warnings=False)
    checked = _parsed(path, text)
    if len(samples) != len(run.rounds):
        raise InvalidInput([f"{path}: rounds: {len(run.rounds)}; got samples of {len(samples)}"])
    if problems := [
        problem
        for number, (its_round, columns) in enumerate(zip(checked.rounds, samples, strict=True))
        for problem in _disagreements(path, number, its_round, columns)
    ]:
        raise InvalidInput(problems)
    contents = {
        file: packed(file, columns, len(run.clusters), len(run.requests))
        for file, columns in zip((folder / each.samples for each in checked.rounds), samples, strict=True)
    }
    path.unlink(missing_ok=True)
    for file, content in contents.items():
        files.replace(file, content)
    files.replace(path, text + b"\n")


def read(folder: Path) -> tuple[Run, list[RoundSamples]]:
    """Reads a run and the samples of its rounds, in their order.

    Raises InvalidInput that names the file and the key.
    """
    run = read_run(folder)
    return run, [read_round(folder, run, number) for number in range(len(run.rounds))]


def read_run(folder: Path) -> Run:
    """Reads `run.json` alone."""
    path = folder / FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidInput([f"{path}: cannot be read: {error.strerror}"]) from error
    return _parsed(path, text)


def read_round(folder: Path, run: Run, number: int) -> RoundSamples:
    """Reads the samples of `run.rounds[number]` and compares them with its counts."""
    its_round = run.rounds[number]
    columns = read_samples(folder / its_round.samples, len(run.clusters), len(run.requests))
    if problems := _disagreements(folder / FILE, number, its_round, columns):
        raise InvalidInput(problems)
    return columns


def _parsed(path: Path, text: bytes) -> Run:
    try:
        run = _RUN.validate_json(text)
    except ValidationError as error:
        raise from_validation(path, error) from error
    if problems := _repeated(path, run):
        raise InvalidInput(problems)
    return run


def _repeated(path: Path, run: Run) -> list[str]:
    """Returns a problem for each repeated round, and for each file that two rounds name."""
    problems = []
    rounds: set[tuple[str, int]] = set()
    files: set[str] = set()
    for number, each in enumerate(run.rounds):
        if (each.policy, each.repetition) in rounds:
            problems.append(
                f"{path}: rounds.{number}: repetition {each.repetition} of {each.policy!r} is there twice; "
                "allowed: once"
            )
        if each.samples in files:
            problems.append(
                f"{path}: rounds.{number}.samples: {each.samples!r} belongs to another round; "
                "allowed: one file per round"
            )
        rounds.add((each.policy, each.repetition))
        files.add(each.samples)
    return problems


def _disagreements(path: Path, number: int, its_round: Round, columns: RoundSamples) -> list[str]:
    """Returns a problem for each count of a round that its samples do not have."""
    counted = {"sent": len(columns), "failed": columns.failed}
    return [
        f"{path}: rounds.{number}.{key}: {getattr(its_round, key)}; {its_round.samples} has {value}"
        for key, value in counted.items()
        if getattr(its_round, key) != value
    ]


def _plain(value: Any) -> Any:
    """Returns the Python value of a numpy scalar or array, which facts and series may hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InvalidInput([f"{FILE}: facts: {value!r} is a {type(value).__name__}; allowed: JSON values"])
