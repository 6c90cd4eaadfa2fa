"""The command `simulate`: a scenario without servers, in the same format as a live run."""

import json
import os
import shlex
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.report import outcome, results
from spillway_lab.report.progress import Progress
from spillway_lab.report.results import Machine, Round, Run
from spillway_lab.report.statistics import METRICS, Comparison
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator.rounds import Simulated, lengthened, rounds
from spillway_lab.stack.stack import ROOT


@click.command("simulate", cls=command_line.Command)
@options.scenario
@click.option(
    "--out",
    type=command_line.PATH,
    default=Path(".spillway/results"),
    show_default=True,
    help="Folder for the results; they are in a folder of the scenario's name.",
)
@options.policies
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Determines a run.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Measured part of a constant load, if the scenario's is shorter.",
)
@options.as_json
def command(file: Path, out: Path, policies: tuple[str, ...], seed: int, seconds: float, as_json: bool) -> None:  # fmt: skip
    """Simulates a scenario. Curves are those of the simulated queues, not learned."""
    scenario, progress = lengthened(scenarios.load(file), seconds), Progress()
    names = list(policies) or list(scenario.document.policies)
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder:
        found = list(rounds(scenario, names, seed, Path(folder), progress.stage))
    progress.end(f"{sum(len(each.samples) for each in found)} requests")
    again = ["python", "-m", "spillway_lab", "simulate", "--scenario", _named(file), "--seed", str(seed)]
    again += ["--seconds", f"{seconds:g}"] + [part for name in policies for part in ("--policy", name)]
    run, samples = _run(scenario, seed, shlex.join(again), started, found), [f.samples for f in found]
    results.write(out / scenario.name, run, samples)
    comparison = Comparison(run, samples)
    if as_json:
        click.echo(json.dumps({name: _values(comparison, name) for name in names}))
        return
    click.echo("\n".join([outcome.figures(comparison), *outcome.verdicts(run, comparison)]))
    click.echo(f"results: {out / scenario.name}", file=sys.stderr)


def _named(file: Path) -> str:
    """Returns a file's path as it is from the root of the repository, if it is in there."""
    path = file.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else file)


def _values(comparison: Comparison, policy: str) -> dict[str, float | None]:
    """Returns a policy's figures over all its rounds. None, which is null in JSON: unknown."""
    return {metric: comparison.estimate(policy, metric).value for metric in METRICS}


def _run(scenario: Scenario, seed: int, again: str, started: datetime, found: list[Simulated]) -> Run:
    document = scenario.document
    machine = Machine(os.cpu_count() or 1, None, None)
    return Run(
        scenario=scenario.name,
        question=document.question,
        kind="simulated",
        time_scale=1.0,
        seed=seed,
        command=again,
        started=started,
        clusters=tuple(scenario.clusters),
        requests=tuple(request.class_id for request in document.requests),
        measured_seconds=document.load.measure.seconds,
        rounds=tuple(
            Round(
                each.policy, each.repetition, f"{each.policy}-{each.repetition}.npz", each.egress_usd_per_hour,
                len(each.samples), each.samples.failed, machine, disturbed=False,
            )
            for each in found
        ),
        facts={
            "curves": "oracle: those of the simulated queues", "arrivals": "Poisson",
            "papa_steps": {f"{f.policy}-{f.repetition}": f.papa for f in found if f.papa},
            "pods": {f"{f.policy}-{f.repetition}": [asdict(each) for each in f.pods] for f in found if f.pods},
        },
    )  # fmt: skip
