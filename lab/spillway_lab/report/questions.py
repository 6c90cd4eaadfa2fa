"""The SQL questions of docs/sql: what each asks, its parameters, and its statement with values.

Parameters are written in ClickHouse's syntax, {name:Type}, so that clickhouse-client runs the same
files with `--param_name value`. The values are filled in here because the local engine does not
support parameters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clickhouse_driver import Client

from spillway_lab.scenario.errors import InvalidInput

_PARAMETER = re.compile(r"\{(\w+):([^{}]+)\}")


@dataclass(frozen=True)
class Question:
    """One file of docs/sql.

    `name` is the file's name without .sql, `about` the comment at its top. `parameters` maps names
    to ClickHouse types.
    """

    name: str
    about: str
    sql: str
    parameters: Mapping[str, str]

    @property
    def title(self) -> str:
        """The question itself: the comment up to the first full stop or question mark."""
        return re.split(r"(?<=[.?])\s", " ".join(self.about.split()))[0]


def read(path: Path) -> Question:
    text = path.read_text()
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    about = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:begin])
    return Question(path.stem, about, "\n".join(lines[begin:]), dict(_PARAMETER.findall(text)))


def read_all(folder: Path) -> dict[str, Question]:
    return {path.stem: read(path) for path in sorted(folder.glob("*.sql"))}


def bound(question: Question, values: Mapping[str, object]) -> str:
    """Returns the statement with each parameter replaced by a literal of its type.

    Raises InvalidInput that names the parameters that are missing or unknown.
    """
    problems = [
        f"{question.name}: parameter {name} ({kind}): missing"
        for name, kind in question.parameters.items()
        if name not in values
    ]
    allowed = ", ".join(question.parameters) or "none"
    problems += [
        f"{question.name}: parameter {name}: unknown; it takes: {allowed}"
        for name in values
        if name not in question.parameters
    ]
    if problems:
        raise InvalidInput(problems)
    return _PARAMETER.sub(lambda match: f"CAST({_literal(values[match[1]])} AS {match[2]})", question.sql)


def ask(
    client: Client, path: Path, values: Mapping[str, object] | None = None
) -> tuple[list[str], list[tuple]]:
    """Runs one question and returns (column names, rows)."""
    rows, columns = client.execute(bound(read(path), values or {}), with_column_types=True)
    return [name for name, _ in columns], rows


def _literal(value: object) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
