"""Blocks as a Markdown page, whose pictures are files beside it. Pure."""

import re
import textwrap
from collections.abc import Sequence

from spillway_lab.pages.blocks import Block, Command, Heading, Picture, Table, Text

_WIDTH = 100
_HEADING_ANCHOR = re.compile(r"[^\w\- ]")


def page(blocks: Sequence[Block], pictures: str) -> str:
    """Returns the page. `pictures` is the folder of the pictures, relative to it."""
    anchors = {
        block.anchor: anchor_of(block.text) for block in blocks if isinstance(block, Heading) and block.anchor
    }
    return "\n\n".join(_block(block, pictures, anchors) for block in blocks) + "\n"


def anchor_of(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    return _HEADING_ANCHOR.sub("", heading.lower()).replace(" ", "-")


def _block(block: Block, pictures: str, anchors: dict[str, str]) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_escaped(block.text)}"
        case Text():
            text = _escaped(block.text)
            text = f"**{text}**" if block.strong else text
            return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
        case Table():
            return _table(block, anchors)
        case Picture():
            return f"![{_escaped(block.about)}]({pictures}/{block.name}.svg)"
        case Command():
            return textwrap.indent(block.text, "    ")


def _table(table: Table, anchors: dict[str, str]) -> str:
    mark = "---:" if table.numbers else "---"
    lines = [_row(table.columns), _row(("---", *[mark] * (len(table.columns) - 1)))]
    for number, row in enumerate(table.rows):
        cells = [_cell(cell) for cell in row]
        if table.links:
            cells[0] = f"[{cells[0]}](#{anchors.get(table.links[number], '')})"
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|").replace("\n", " ")


def _escaped(text: str) -> str:
    """Escapes what Markdown would take for markup, outside of backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)
    return "`".join(
        part if number % 2 else re.sub(r"([\\*<>\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part)
        for number, part in enumerate(parts)
    )
