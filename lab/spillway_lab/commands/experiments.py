"""The command `experiments`: runs what has not been run yet of the experiments of the papers."""

import json
from pathlib import Path
from typing import get_args

import click
from spillway_runtime import command_line

from spillway_lab.commands.report import EXPERIMENTS
from spillway_lab.experiments import driver
from spillway_lab.findings import catalogue
from spillway_lab.findings.catalogue import Experiment, Kind
from spillway_lab.report import tables
from spillway_lab.report.progress import Progress
from spillway_lab.scenario.errors import InvalidInput, LabError
from spillway_lab.stack.stack import ROOT


@click.command("experiments", cls=command_line.Command)
@click.argument("names", metavar="[EXPERIMENT...]", nargs=-1)
@click.option("--out", type=command_line.PATH, required=True, help="Folder for the results.")
@click.option("--again", is_flag=True, help="Runs what is there already too.")
@click.option("--kind", type=click.Choice(get_args(Kind)), help="Runs only those of this kind.")
@click.option("--list", "listed", is_flag=True, help="Shows the experiments and runs nothing.")
def command(names: tuple[str, ...], out: Path, again: bool, kind: Kind | None, listed: bool) -> None:
    """Runs experiments of lab/experiments, all of them or those named.

    Results that are there, of the same scenario and application files, are kept. So an interrupted
    run goes on where it was. The last line is one JSON object.
    """
    wanted = chosen(catalogue.load_all(EXPERIMENTS), names)
    jobs, problems = driver.jobs(wanted, out)
    if problems:
        raise InvalidInput(problems)
    jobs = [job for job in jobs if kind is None or job.kind == kind]
    if listed:
        print(table(wanted, jobs))
        return
    counts = {"ran": 0, "there already": 0, "failed": 0}
    failures = []
    for job, outcome, why in driver.run_all(jobs, ROOT, again, Progress()):
        counts[outcome] += 1
        if why:
            failures.append(f"{job.experiment}, {job.name}: {why}")
    without = [name for name, experiment in wanted.items() if not catalogue.runs(experiment)]
    print(json.dumps({key.replace(" ", "_"): n for key, n in counts.items()} | {"without_scenario": without}))
    if failures:
        raise LabError("\n".join(failures))


def chosen(known: dict[str, Experiment], names: tuple[str, ...]) -> dict[str, Experiment]:
    """Returns the experiments of these names, or all. Raises InvalidInput for unknown names."""
    if unknown := [name for name in names if name not in known]:
        allowed = ", ".join(known)
        raise InvalidInput([f"experiment {name!r}: unknown; there are: {allowed}" for name in unknown])
    return {name: known[name] for name in names} if names else known


def table(experiments: dict[str, Experiment], jobs: list[driver.Job]) -> str:
    """Returns the experiments as a text table: how many runs each has, and how many are there."""
    rows = []
    for name, experiment in experiments.items():
        mine = [job for job in jobs if job.experiment == name]
        there = sum(job.done() for job in mine)
        rows.append((name, experiment.kind, len(mine), there, experiment.minutes, experiment.title))
    return tables.text(["experiment", "kind", "runs", "there", "minutes", "title"], rows)
