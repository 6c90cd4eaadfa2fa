"""Writes the files of a run folder."""

from collections.abc import Mapping
from pathlib import Path

from spillway_lab.scenario.errors import LabError


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files and returns their paths.

    Each file is written completely or not at all (rename). A process that starts meanwhile reads
    either the old or the new file. Also creates the folder for logs. Raises LabError on failure.
    """
    written = []
    try:
        (folder / "log").mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, content)
            written.append(path)
    except OSError as error:
        raise LabError(f"{folder}: cannot be written: {error}") from error
    return written


def replace(path: Path, content: str) -> None:
    """Writes a file completely or not at all, so that nobody reads half of it. Raises OSError."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(content)
    unfinished.replace(path)
