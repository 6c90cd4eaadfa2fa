"""Writes the table of a chart's values into its README.

Defaults come from values.yaml, meanings from values.schema.json.

Usage: python tools/charts/table.py [--check] CHART...
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

BEGIN, END = "<!-- values -->\n", "<!-- /values -->\n"


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yields (dotted path, default, meaning) of each value that is not a group of others."""
    for key, value in values.items():
        about, where = schema["properties"][key], f"{path}{key}"
        if isinstance(value, dict) and "properties" in about and key != "resources":
            yield from leaves(value, about, f"{where}.")
        else:
            yield where, value, about.get("description", "")


def table(chart: Path) -> str:
    """Returns the table of the chart's values."""
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    rows = [f"| `{w}` | `{json.dumps(default)}` | {about} |" for w, default, about in leaves(values, schema)]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])


def with_table(chart: Path) -> str:
    """Returns the README with its current table. Raises ValueError when it has no place for it."""
    head, begin, rest = (chart / "README.md").read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{chart}/README.md: needs the lines {BEGIN.strip()} and {END.strip()}")
    return head + begin + table(chart) + end + tail


def main(arguments: list[str]) -> int:
    check = arguments[:1] == ["--check"]
    stale = []
    for chart in map(Path, arguments[check:]):
        text = with_table(chart)
        if text != (chart / "README.md").read_text():
            stale.append(f"{chart}/README.md: stale, run 'python tools/charts/table.py {chart}'")
            if not check:
                (chart / "README.md").write_text(text)
    if check and stale:
        print("\n".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
