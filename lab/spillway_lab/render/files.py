"""Writes files completely or not at all, such as those of a run folder."""

from collections.abc import Mapping
from pathlib import Path

from spillway_lab.scenario.errors import LabError


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files of a run folder and returns their paths. Also creates the folder for logs.

    Each file is replaced as `replace` does it. Raises LabError on failure.
    """
    try:
        (folder / "log").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: cannot be written: {error}") from error
    for name, content in files.items():
        replace(folder / name, content)
    return [folder / name for name in files]


def replace(path: Path, content: str | bytes) -> None:
    """Writes a file completely or not at all (rename), and creates its folder.

    A process that reads meanwhile gets either the old or the new content. Raises LabError on
    failure.
    """
    unfinished = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.replace(path)
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error}") from error
