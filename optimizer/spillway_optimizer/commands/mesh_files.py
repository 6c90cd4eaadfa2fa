"""The topology and the guardrails of a command: given as options, or by environment variables."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError
from spillway_contracts import topology as topology_file
from spillway_runtime import command_line

from spillway_optimizer.sources.errors import InputError, SettingError

TOPOLOGY, GUARDRAILS = "SPILLWAY_TOPOLOGY", "SPILLWAY_GUARDRAILS"

topology_option = click.option(
    "--topology", type=command_line.PATH, metavar="YAML", help=f"Default: {TOPOLOGY}."
)
guardrails_option = click.option(
    "--guardrails",
    type=command_line.PATH,
    metavar="YAML",
    help=f"Guardrails that routes must keep. Default: {GUARDRAILS}.",
)


def topology(given: Path | None) -> tuple[Path, Topology]:
    """Returns the topology and its file. Raises CommandError.

    A malformed topology is a ContractError that names the file and each key.
    """
    path = path_of(given, TOPOLOGY)
    if path is None:
        raise InputError(f"--topology: missing, and {TOPOLOGY} is not set")
    with of_variable(TOPOLOGY, given):
        found = topology_file.load(path)
    if not found.usd_per_ms_per_million_requests > 0:
        raise InputError(f"{path}: usd_per_ms_per_million_requests: must be a number above 0")
    return path, found


def path_of(given: Path | None, variable: str) -> Path | None:
    """Returns the given path, or else that of the environment variable."""
    file = given or os.environ.get(variable)
    return Path(file) if file else None


@contextlib.contextmanager
def of_variable(variable: str, given: Path | None) -> Iterator[None]:
    """Converts an error of a file that an environment variable names to a SettingError.

    An error of a file that an argument names is raised unchanged.
    """
    try:
        yield
    except ContractError as error:
        if given:
            raise
        raise SettingError("\n".join(f"{variable}: {line}" for line in str(error).splitlines())) from error
