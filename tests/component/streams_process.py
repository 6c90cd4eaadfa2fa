"""Commands and jobs of `spillway_streams`, run as processes."""

import os
import subprocess
import sys
from pathlib import Path

from spillway_lab.testing import servers


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "spillway_streams", *arguments], env=os.environ | environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def succeed(*arguments: str, **environment: str) -> str:
    """Runs a command that must succeed, and returns its stderr."""
    done = command(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def job(name: str, folder: Path, health: int, environment: dict[str, str]) -> servers.Server:
    return start(name, [sys.executable, "-m", "spillway_streams", name], folder, health, environment)


def start(
    name: str, command: list[str], folder: Path, health: int, environment: dict[str, str]
) -> servers.Server:
    folder.mkdir(parents=True, exist_ok=True)
    variables = {"SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{health}", "SPILLWAY_STATE_DIR": str(folder / "state")}
    return servers.Server(
        "", command, folder / f"{name}.log", lambda: servers.healthy(health), variables | environment
    )
