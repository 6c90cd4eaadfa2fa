"""Writes the tables of settings and metrics into the REFERENCE.md of each box, and for Python boxes
the JSON Schema of the file of settings beside it.

python tools/box_tables.py           writes them
python tools/box_tables.py --check   names what is stale, and fails
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import filter_tables
import program_tables
from pydantic.fields import FieldInfo
from spillway_clickhouse import config as clickhouse
from spillway_optimizer.solving import config as optimizer
from spillway_optimizer.solving.metrics import FAMILIES as OPTIMIZER_METRICS
from spillway_publisher.process import config as publisher
from spillway_publisher.service.metrics import FAMILIES as PUBLISHER_METRICS
from spillway_runtime import metrics, settings
from spillway_runtime.box import Box
from spillway_streams.process import config as streams
from spillway_streams.process.metrics import FAMILIES as STREAMS_METRICS

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- {} made by tools/box_tables.py -->\n", "<!-- end -->\n"
_UNITS = {"S": "s", "MS": "ms"}
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"))
_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


@dataclass(frozen=True)
class Reference:
    """The page of a Python box, with what its tables are made of."""

    folder: str
    box: Box
    families: Sequence[metrics.Family] = ()


REFERENCES = (
    Reference("streams", streams.BOX, STREAMS_METRICS),
    Reference("optimizer", optimizer.BOX, OPTIMIZER_METRICS),
    Reference("rule-publisher/publisher", publisher.BOX, PUBLISHER_METRICS),
    Reference("infra/clickhouse", clickhouse.BOX),
)
# Pages of other boxes, with the function that makes their tables.
PROGRAMS: Mapping[str, Callable[[Path], dict[str, str]]] = {
    "rule-publisher/relay/REFERENCE.md": program_tables.relay,
    "collectors/kafkapartitionexporter/README.md": lambda folder: {
        "settings": program_tables.collector_keys(folder.parent, "kafkapartitionexporter")
    },
    "collectors/AGENT.md": lambda folder: {
        "kubelet_cpu": program_tables.collector_keys(folder, "kubeletcpureceiver"),
        "queue_guard": program_tables.collector_keys(folder, "queueguardextension"),
    },
    "wasm/REFERENCE.md": filter_tables.tables,
}
# What finds differences between hand-written tables and a program, with the program's folder.
COMPARISONS: Sequence[tuple[Callable[[Path], list[str]], str]] = (
    (program_tables.collector_variables, "collectors"),
    (program_tables.collector_metrics, "collectors"),
)


def settings_table(box: Box) -> str:
    """Returns the table of what tunes a box, in the order of its programs and their fields."""
    programs: dict[str, list[str]] = {}
    fields: dict[str, FieldInfo] = {}
    for program, kind in box.programs.items():
        for field, info in kind.model_fields.items():
            if settings.is_tuning(info):
                variable = settings.names(field, info)[0]
                programs.setdefault(variable, []).append(program)
                fields.setdefault(variable, info)
    lines = ["| variable | default | allowed | of | meaning |", "|---|---|---|---|---|"]
    for variable, info in fields.items():
        of = ", ".join(f"`{program}`" for program in programs[variable])
        cells = shown(variable, info.default), allowed(variable, info), of, info.description
        lines.append(f"| `{variable}` | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def shown(variable: str, value: object) -> str:
    """Returns a default with the unit that ends the variable's name."""
    unit = variable.rpartition("_")[2]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or "empty"
    if unit == "BYTES" and isinstance(value, int):
        for size, name in _SIZES:
            if value % size == 0:
                return f"{value // size} {name}"
    text = f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"
    return f"{text} {_UNITS[unit]}" if unit in _UNITS else text


def allowed(variable: str, info: FieldInfo) -> str:
    """Returns the words that a field may be, or its bounds with the unit of the variable."""
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(info.annotation))
    bounds = {
        name: getattr(constraint, name)
        for constraint in info.metadata
        for name, _ in _BOUNDS
        if hasattr(constraint, name)
    }
    return ", ".join(f"{sign} {shown(variable, bounds[name])}" for name, sign in _BOUNDS if name in bounds)


def written() -> dict[Path, str]:
    """Returns the text of each file. Raises ValueError when a page lacks a mark."""
    files: dict[Path, str] = {}
    for reference in REFERENCES:
        page = ROOT / reference.folder / "REFERENCE.md"
        tables = {"settings": settings_table(reference.box)}
        if reference.families:
            tables["metrics"] = metrics.table(reference.families)
        files[page] = with_tables(page, tables)
        schema = json.dumps(reference.box.schema(), indent=2, ensure_ascii=False) + "\n"
        files[page.with_name("settings.schema.json")] = schema
    for name, tables_of in PROGRAMS.items():
        page = ROOT / name
        files[page] = with_tables(page, tables_of(page.parent))
    return files


def with_tables(page: Path, tables: Mapping[str, str]) -> str:
    """Returns the text of a page with its current tables, by the name of their mark."""
    text = page.read_text()
    for what, table in tables.items():
        text = _replaced(page, text, what, table)
    return text


def _replaced(page: Path, text: str, what: str, table: str) -> str:
    start = START.format(what)
    pattern = re.compile(re.escape(start) + r".*?" + re.escape(END), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{page}: must have {start.strip()} … {END.strip()} once")
    return pattern.sub(lambda _: start + table + END, text)


def main(check: bool) -> int:
    files = written()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if not check:
        for path in stale:
            path.write_text(files[path])
        return 0
    problems = [f"{path.relative_to(ROOT)}: stale; run python tools/box_tables.py" for path in stale]
    for compare, folder in COMPARISONS:
        problems += [f"{folder}/{problem}" for problem in compare(ROOT / folder)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
