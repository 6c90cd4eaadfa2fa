"""Recorded traces as a source.

streams/ computes the model in its own process, because no box imports another.
"""

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import IO

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.errors import InputError, UnavailableError

STREAMS = "spillway_streams"


Options = Mapping[str, str | int | None]  # option of streams -> value; None: not given


def read(files: Sequence[Path], options: Options, topology: Path, progress: Progress) -> Telemetry:
    """Reads traces. Raises UnavailableError if streams is not installed.

    Raises InputError with the messages of streams about the files.
    """
    if util.find_spec(STREAMS) is None:
        raise UnavailableError(
            f"--traces: needs the package spillway-streams in this Python ({sys.executable}); install it, or "
            f"run `python -m {STREAMS} model` where it is and give its output as --model"
        )
    text = _run(_command(files, options, topology), progress)
    return model_file.parse(text, "model of " + ", ".join(map(str, files)))


def _command(files: Sequence[Path], options: Options, topology: Path) -> list[str]:
    command = [sys.executable, "-m", STREAMS, "model", "--topology", str(topology)]
    for flag, value in options.items():
        if value is not None:
            command += [flag, str(value)]
    return [*command, "--traces", *map(str, files)]


def _run(command: list[str], progress: Progress) -> str:
    """Runs the command and returns its stdout.

    Its stderr is shown as it arrives. It contains progress and, at the end, the reason of a
    failure.
    """
    last: deque[str] = deque(maxlen=20)
    with (
        progress.step("reading traces"),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None and process.stderr is not None  # both are pipes
        reader = _Drain(process.stdout)
        for line in process.stderr:
            last.append(line.rstrip())
            if not line.startswith("error: "):
                progress.write(line.rstrip())
        text = reader.result()
    if process.returncode == 0:
        return text
    errors = [line.removeprefix("error: ") for line in last if line.startswith("error: ")]
    raise InputError("\n".join(errors or [f"{' '.join(command[:4])} ended with {process.returncode}"]))


class _Drain:
    """Reads a pipe to its end in a thread, so that the process never blocks on a full pipe."""

    def __init__(self, pipe: IO[str]):
        self._text = ""
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: IO[str]) -> None:
        self._text = pipe.read()

    def result(self) -> str:
        self._thread.join()
        return self._text
