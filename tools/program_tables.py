"""Makes the tables of programs that are not written in Python. A small program beside each of them
prints its declarations as JSON.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def relay(folder: Path) -> dict[str, str]:
    """Returns the relay's tables by the name of their mark."""
    declared = printed(folder, "go", "run", "./reference")
    settings = [
        (f"`{row['Name']}`", _default(row), row["Value"], row["Meaning"]) for row in declared["settings"]
    ]
    metrics = [
        (f"`{row['Name']}`", _codes(row["Labels"]), row["Type"], row["Help"]) for row in declared["metrics"]
    ]
    return {
        "settings": table(("variable", "default", "value", "meaning"), settings),
        "metrics": table(("metric", "labels", "type", "what"), metrics),
    }


def printed(folder: Path, *command: str) -> Any:
    """Returns the JSON that a program prints. Raises ValueError with its errors when it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{folder}: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a Markdown table."""
    titles = list(head)
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(titles), *lines[1:]]) + "\n"


def _default(row: Mapping[str, Any]) -> str:
    if row["Required"]:
        return "required"
    return _code(row["Default"]) or "none"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _codes(words: Iterable[str] | None) -> str:
    return ", ".join(f"`{word}`" for word in words or ())
