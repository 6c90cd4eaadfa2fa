"""Plain text tables."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table. The first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    return [
        "  ".join(_cell(n, text, widths[n]) for n, text in enumerate(row)).rstrip() for row in (head, *rows)
    ]


def _cell(n: int, text: str, width: int) -> str:
    return text.ljust(width) if n == 0 else text.rjust(width)
