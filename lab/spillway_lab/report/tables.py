"""Results of SQL questions as text tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clickhouse_driver import Client

from spillway_lab.report import questions


def text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table with aligned columns: numbers to the right, text to the left."""
    cells = [list(columns)] + [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))
    ]

    def line(row: list[str]) -> str:
        padded = (
            c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * width for width in widths), *map(line, cells[1:])])


def answer(client: Client, sql: Path, values: Mapping[str, object] | None = None) -> str:
    """Runs one .sql file with these parameters and returns its result as a table."""
    return text(*questions.ask(client, sql, values))


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
