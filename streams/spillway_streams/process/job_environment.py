"""The settings of several jobs in one process: which variables each job is given.

In a process with all jobs, SPILLWAY_<JOB>_X is the variable SPILLWAY_X of this job alone. It
precedes SPILLWAY_X, which all jobs are given. Each job thus keeps its own addresses, credentials
and settings.
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spillway_runtime import exit_codes, settings
from spillway_runtime.settings import PREFIX, HostPort, Settings

from spillway_streams.process import config

_STATE_DIR, _LISTEN = "STATE_DIR", "HEALTH_LISTEN"


class AllSettings(Settings):
    """Settings of the process itself."""

    state_dir: Path
    health_listen: HostPort


def of_job(job: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a job is given.

    Its folder is below that of the process.
    """
    own = f"{PREFIX}{job.upper()}_"
    given = {
        PREFIX + name.removeprefix(own): value
        for name, value in environment.items()
        if name.startswith(own) and value
    }
    if folder := environment.get(PREFIX + _STATE_DIR):
        given.setdefault(PREFIX + _STATE_DIR, str(Path(folder) / job))
    return {**environment, **given}


def unlisted(jobs: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Returns a line for each job without an address of its own for health and metrics."""
    variables = {job: f"{PREFIX}{job.upper()}_{_LISTEN}" for job in jobs}
    lines, users = [], {environment.get(PREFIX + _LISTEN): PREFIX + _LISTEN}
    for job, variable in variables.items():
        if not (listen := environment.get(variable)):
            lines.append(f"{variable}: is not set; the job {job} needs an address of its own")
        elif listen in users:
            lines.append(f"{variable}: must differ from {users[listen]}; both are {listen}")
        users.setdefault(listen, variable)
    return lines


def load(jobs: Collection[str]) -> tuple[AllSettings, dict[str, Any]]:
    """Returns the settings of the process, and those of each of its jobs.

    If any are wrong, prints one line for each and exits with code 64.
    """
    process = settings.load(AllSettings)
    if lines := unlisted(jobs, os.environ):
        print("\n".join(lines), file=sys.stderr)
        raise SystemExit(exit_codes.USAGE)
    found = {}
    for job in jobs:
        with _environment(of_job(job, os.environ)):
            found[job] = config.BOX.load(job)
    return process, found


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Replaces the environment of this process until the block ends."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
