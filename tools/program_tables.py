"""Makes the tables of programs that are not written in Python. A small program beside each of them
prints its declarations as JSON.

Where nothing is declared, hand-written tables are compared with what the program reads.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"(?<![A-Z0-9_$])SPILLWAY_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_$])")


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


def collector_keys(collectors: Path, module: str) -> str:
    """Returns the table of the configuration of one of our components."""
    files = "../reference/keys.go", f"../reference/{module}.go"
    rows = printed(collectors / module, "go", "run", *files)
    return table(
        ("key", "default", "meaning"),
        [(f"`{row['Name']}`", _code(row["Default"]), row["Meaning"]) for row in rows],
    )


def collector_variables(collectors: Path) -> list[str]:
    """Returns where the tables of environment variables differ from what `run` reads.

    `run` names what it checks when it is traced without an environment. What it reads only in some
    environments is in its text.
    """
    traced = {mode: _trace(collectors / "run", mode) for mode in ("config.yaml", "agent.yaml")}
    code = "".join(_without_comments(collectors / name) for name in ("run", "checks.sh"))
    set_by_run = set(re.findall(r"(?:export |\s)(SPILLWAY_\w+)=\"", code))
    read = {mode: set(_VARIABLE.findall(text)) for mode, text in traced.items()}
    agents = read["agent.yaml"] - read["config.yaml"]
    everywhere = (set(_VARIABLE.findall(code)) | read["config.yaml"]) - set_by_run - agents
    problems = []
    for page, mode, names in (
        ("REFERENCE.md", "config.yaml", everywhere),
        ("AGENT.md", "agent.yaml", agents),
    ):
        rows = _variable_rows(collectors / page)
        needed = set(re.findall(r"^spillway-collector: (\w+): not set; needed", traced[mode], re.MULTILINE))
        problems += [f"{page}: {name}: `run` does not read it" for name in sorted(rows.keys() - names)]
        problems += [f"{page}: {name}: missing, `run` reads it" for name in sorted(names - rows.keys())]
        problems += [
            f"{page}: {name}: needed is {rows[name]!r}"
            for name in sorted(rows.keys() & names)
            if (rows[name] == "yes") != (name in needed)
        ]
    return problems


def collector_metrics(collectors: Path) -> list[str]:
    """Returns where the pages differ from the exporter's metrics in its metadata.yaml."""
    exporter = collectors / "kafkapartitionexporter"
    declared = yaml.safe_load((exporter / "metadata.yaml").read_text())["telemetry"]["metrics"]
    metrics = {f"otelcol_{name}": metric for name, metric in declared.items()}
    _, *sections = re.split(r"^### (\w+)$", (exporter / "documentation.md").read_text(), flags=re.MULTILINE)
    documented = dict(zip(sections[::2], sections[1::2], strict=True))
    problems = [f"documentation.md: {name}: run mdatagen" for name in documented.keys() ^ metrics.keys()]
    for name in documented.keys() & metrics.keys():
        metric, section = metrics[name], documented[name]
        attributes = re.findall(r"^\| (\w+) \| .* \| Any Str \|", section, re.MULTILINE)
        parts = f"\n{metric['description']}\n", f"\n| {metric['unit']} | "
        if attributes != metric["attributes"] or not all(part in section for part in parts):
            problems.append(f"documentation.md: {name}: stale, run mdatagen")
    rows = re.findall(
        r"^\| `(otelcol_exporter_kafka_\w+)` \| (.*?) \|",
        (collectors / "REFERENCE.md").read_text(),
        re.MULTILINE,
    )
    for name, labels in rows:
        if name not in metrics or labels != _codes(metrics[name]["attributes"]):
            problems.append(
                f"REFERENCE.md: {name}: metadata.yaml does not declare it, or with other attributes"
            )
    return problems


def _trace(run: Path, configuration: str) -> str:
    """Returns what `run` prints when it is traced and no variable is set."""
    command = ["sh", "-x", str(run), "--config", configuration]
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(command, env=environment, capture_output=True, text=True).stderr


def _without_comments(script: Path) -> str:
    return re.sub(r"^\s*#.*$", "", script.read_text(), flags=re.MULTILINE)


def _variable_rows(page: Path) -> dict[str, str]:
    """Returns the column "needed" of each variable in the table of a page."""
    rows = re.findall(r"^\| (`SPILLWAY_.*?) \| (.*?) \|", page.read_text(), re.MULTILINE)
    return {name: needed for names, needed in rows for name in re.findall(r"\w+", names)}


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
