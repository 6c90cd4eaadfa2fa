"""A page as a list of blocks, which HTML and Markdown are both made of. Pure.

Text in backticks is code. Nothing else is marked up.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    level: int  # 1 to 3
    text: str
    anchor: str = ""  # letters, digits and hyphens; empty: nothing links to it


@dataclass(frozen=True)
class Text:
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table of short cells. Its first column is text, and so are the others without `numbers`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: bool = True
    # anchors that the cells of the first column link to, one for each row; empty: no links
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    name: str  # of its file in the Markdown version, without .svg
    svg: str
    about: str  # for readers who cannot see it


@dataclass(frozen=True)
class Command:
    text: str


Block = Heading | Text | Table | Picture | Command
