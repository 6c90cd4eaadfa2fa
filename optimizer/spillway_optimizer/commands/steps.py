"""`spillway steps`: the running optimizer and PAPA, with a clock that the input steps."""

import json
import sys
from pathlib import Path

import click
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import command_line
from spillway_runtime.settings import load

from spillway_optimizer.commands import mesh_files
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.solving.config import OptimizerTuning, PapaTuning


@click.command("steps", cls=command_line.Command)
@mesh_files.topology_option
@mesh_files.guardrails_option
@click.option(
    "--policy", default=SPILLWAY, show_default=True, type=click.Choice(list(REGISTRY)), help="What routes."
)
@click.option("--papa/--no-papa", default=True, show_default=True, help="Whether PAPA adjusts the rules.")
def steps(topology: Path | None, guardrails: Path | None, policy: str, papa: bool) -> None:
    """Decides as `run` and `papa` do, by the clock of the input, for simulations.

    Each line of stdin is a JSON object: `at_ms`, a time in Unix milliseconds, and `model`, what is
    observed then, as in contracts/golden/3_model.json. Each line of stdout answers one, with the
    rules in force and what was done: solves, steps of PAPA, refused proposals. Proposals are in
    force at once. Settings are the variables of `run` and `papa`.
    """
    from spillway_optimizer.steps import document
    from spillway_optimizer.steps.stepping import Stepping

    _, declared = mesh_files.topology(topology)
    with mesh_files.of_variable(mesh_files.GUARDRAILS, guardrails):
        file = GuardrailFile(mesh_files.path_of(guardrails, mesh_files.GUARDRAILS), declared)
    stepping = Stepping(declared, policy, file, load(OptimizerTuning), load(PapaTuning) if papa else None)
    at = 0.0
    for number, line in enumerate(sys.stdin, 1):
        at, telemetry = document.read(line, f"stdin:{number}", at)
        print(json.dumps(stepping.step(at, telemetry)), flush=True)
    stepping.close()
