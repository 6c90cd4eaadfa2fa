"""Writing a run folder."""

from collections.abc import Mapping
from pathlib import Path

from spillway_lab.scenario.errors import LabError


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes each file whole or not at all (rename), so that a process that starts now reads the old
    or the new one. Makes the folder for logs too. LabError when it cannot."""
    written = []
    try:
        (folder / "log").mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(path.name + ".new")
            unfinished.write_text(content)
            unfinished.replace(path)
            written.append(path)
    except OSError as error:
        raise LabError(f"{folder}: cannot be written: {error}") from error
    return written
