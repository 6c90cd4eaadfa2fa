"""Runs experiments one after the other, and skips what has been run with the same inputs.

Each run is a process of its own. What it prints goes to a log beside its results. A run that fails
does not stop the others.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spillway_lab.findings import catalogue, inputs
from spillway_lab.findings.catalogue import Experiment, Kind, Variant
from spillway_lab.findings.inputs import Stamp
from spillway_lab.findings.reading import FACTS
from spillway_lab.report import results
from spillway_lab.report.progress import Progress
from spillway_lab.scenario.errors import InvalidInput

Outcome = Literal["ran", "there already", "failed"]
# A run may take this many times as long as its experiment's minutes say, and ten minutes at least.
_PATIENCE, _LEAST_S = 4.0, 600.0
_BESIDE_MINUTES = 1.0  # of a scenario that is simulated beside a live run
_POLL_S = 0.5
_STOP_S = 60.0  # for an interrupted run, whose stack stops its processes


@dataclass(frozen=True)
class Job:
    """One run of an experiment."""

    experiment: str
    name: str  # of the variant; that of the experiment for a benchmark
    command: Sequence[str]
    folder: Path  # of its results
    digest: str
    minutes: float  # that it is expected to take
    kind: Kind

    @property
    def limit_s(self) -> float:
        """After this time it is stopped."""
        return max(_LEAST_S, _PATIENCE * 60 * self.minutes)

    @property
    def results(self) -> Path:
        return self.folder / (FACTS if self.kind == "benchmark" else results.FILE)

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    def done(self) -> bool:
        """Returns whether its results are there and of the same inputs."""
        if not self.results.exists():
            return False
        try:
            stamp = inputs.stamp(self.folder)
        except InvalidInput:
            return False  # a stamp that cannot be read is written again
        return stamp is not None and stamp.digest == self.digest


def jobs(experiments: Mapping[str, Experiment], out: Path) -> tuple[list[Job], list[str]]:
    """Returns the runs of all experiments, and a problem for each that cannot be started.

    Changed copies of scenario files are written into `out/E/scenarios`.
    """
    found: list[Job] = []
    problems: list[str] = []
    for name, experiment in experiments.items():
        if experiment.kind == "benchmark":
            digest = inputs.of_benchmark(experiment).digest
            minutes = experiment.minutes
            found.append(Job(name, name, experiment.command, out / name, digest, minutes, "benchmark"))
            continue
        variants = catalogue.variants(experiment)
        # The minutes are those of its own kind. What is simulated beside live runs takes a minute.
        runs = sum(variant.kind == experiment.kind for variant in variants)
        for variant in variants:
            try:
                own = variant.kind == experiment.kind
                minutes = experiment.minutes / runs if own else _BESIDE_MINUTES
                found.append(_job(name, variant, out / name, minutes))
            except InvalidInput as error:
                problems += error.problems
    return found, problems


def _job(name: str, variant: Variant, folder: Path, minutes: float) -> Job:
    made = inputs.of_variant(variant)
    scenario = inputs.written(made, variant, folder / "scenarios")
    what = "lab" if variant.kind == "live" else "simulate"
    command = (sys.executable, "-m", "spillway_lab", what, "--scenario", str(scenario), "--out", str(folder))
    return Job(name, variant.name, command, folder / variant.name, made.digest, minutes, variant.kind)


def run_all(
    wanted: Sequence[Job], root: Path, again: bool, progress: Progress
) -> Iterator[tuple[Job, Outcome, str]]:
    """Yields each job with its outcome, and why it failed, when it has ended.

    `root` is the folder that commands run in. With `again`, results that are there are replaced.
    """
    missing = [job for job in wanted if again or not job.done()]
    for job in wanted:
        if job not in missing:
            yield job, "there already", ""
    for number, job in enumerate(missing):
        left = sum(each.minutes for each in missing[number:])
        progress.stage(f"{number + 1} of {len(missing)}, {left:.0f} min")
        label = job.experiment if job.kind == "benchmark" else f"{job.experiment}, {job.name}"
        why = run(job, root, lambda line, label=label: progress.show(f"{label}: {line}"))  # type: ignore[misc]
        progress.end(f"{label}: {why or 'ran'}")
        yield job, "failed" if why else "ran", why


def run(job: Job, root: Path, show: Callable[[str], None]) -> str:
    """Runs one job, and stamps its results if they are there. Returns why it failed, or nothing."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    (job.folder / inputs.FILE).unlink(missing_ok=True)
    job.results.unlink(missing_ok=True)
    try:
        code = _process(job, root, show)
    except OSError as error:
        return f"{job.command[0]}: cannot be started: {error.strerror}"
    if code is None:
        return f"stopped after {job.limit_s:.0f} s, its log is {job.log}"
    if code != 0:
        return f"exit code {code}, its log is {job.log}"
    why = _keep_facts(job) if job.kind == "benchmark" else _unreadable(job)
    if not why:
        command = ["python" if part == sys.executable else part for part in relative(job.command, root)]
        stamp = Stamp(digest=job.digest, commit=commit(root), command=command)
        (job.folder / inputs.FILE).write_text(stamp.model_dump_json(indent=1) + "\n")
    return why


def relative(command: Sequence[str], root: Path) -> list[str]:
    """Returns the command with paths below `root` relative to it, as anyone can run it there."""
    below = f"{root}{os.sep}"
    return [
        os.path.relpath(part, root) if part.startswith(below) and part != sys.executable else part
        for part in command
    ]


def _process(job: Job, root: Path, show: Callable[[str], None]) -> int | None:
    """Returns the exit code, or None if the time was over. An interrupt stops the process too."""
    deadline = time.monotonic() + job.limit_s
    with job.log.open("w") as log:
        process = subprocess.Popen(
            relative(job.command, root),
            cwd=root,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                show(last_line(job.log))
            return process.returncode
        finally:
            _stop(process)


def _stop(process: subprocess.Popen) -> None:
    """Ends a process and its children. They can clean up before SIGKILL comes.

    Programs that a shell started in the background ignore SIGINT. The lab takes SIGTERM alike.
    """
    for number, patience in ((signal.SIGINT, _STOP_S), (signal.SIGTERM, _STOP_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def last_line(path: Path) -> str:
    """Returns the last line of a log that is not empty. A line may end in a carriage return."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 4096))
        lines = log.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _unreadable(job: Job) -> str:
    """Returns what is wrong with the results of a run, or nothing."""
    try:
        results.read_run(job.folder)
    except InvalidInput as error:
        return "; ".join(error.problems)
    return ""


def _keep_facts(job: Job) -> str:
    """Stores the last line of a benchmark. Returns what is wrong with it, or nothing."""
    line = last_line(job.log)
    try:
        facts = json.loads(line)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        return f"{job.log}: last line: must be one JSON object; got {line[:80]!r}"
    job.folder.mkdir(parents=True, exist_ok=True)
    job.results.write_text(json.dumps(facts, indent=1) + "\n")
    return ""


def commit(root: Path) -> str:
    """Returns the commit of a checkout; empty if there is none."""
    try:
        shown = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return shown.stdout.strip() if shown.returncode == 0 else ""
