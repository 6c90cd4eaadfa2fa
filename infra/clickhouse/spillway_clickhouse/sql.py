"""Classifies a statement's text: an INSERT with data, a SELECT, a SET, or another one.

It reads tokens only, aware of comments and quotes. The engine does the real parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[!\ ][^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\]|\\.|'')*')
      | (?P<heredoc>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
      | (?P<word>[A-Za-z_0-9]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUERY_WORDS = {"SELECT", "WITH", "FROM", "("}
UNSUPPORTED = 48  # ClickHouse's NOT_IMPLEMENTED


class Unsupported(Exception):
    """This server refuses the statement. The message says what and why."""


@dataclass(frozen=True)
class Token:
    """A token of a statement. `start` and `end` are its positions in the text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The keyword or sign in capitals; '' for quoted text."""
        return self.text.upper() if self.kind in ("word", "sign") else ""

    @property
    def name(self) -> str:
        """The identifier that the token spells, without quotes."""
        if self.kind != "quoted":
            return self.text
        quote = self.text[0]
        return re.sub(r"\\(.)", r"\1", self.text[1:-1].replace(quote * 2, quote))


@dataclass(frozen=True)
class InsertData:
    """An INSERT whose rows follow as blocks.

    `head` is the statement up to the end of the column list. `settings` is its SETTINGS clause or
    ''.
    """

    head: str
    settings: str
    table: str
    columns: tuple[str, ...] | None


def tokens(text: str) -> list[Token]:
    """Returns the tokens without white space, comments, and semicolons at the end."""
    found = [
        Token(_kind(m), m.group(), m.start(), m.end())
        for m in _TOKEN.finditer(text)
        if m.lastgroup != "space"
    ]
    while found and found[-1].upper == ";":
        found.pop()
    return found


def _kind(found: re.Match[str]) -> str:
    name = found.lastgroup
    assert name is not None  # every alternative of _TOKEN has a name
    return "string" if name in ("heredoc", "tag") else name


def is_select(found: list[Token]) -> bool:
    """Returns whether the statement is a SELECT in any of its spellings."""
    return bool(found) and found[0].upper in _QUERY_WORDS


def without_format(text: str, found: list[Token]) -> str:
    """Returns the statement without semicolons and a FORMAT clause at its end.

    On this protocol blocks are always Native.
    """
    if len(found) > 2 and found[-2].upper == "FORMAT" and found[-1].kind == "word":
        found = found[:-2]
    return text[: found[-1].end] if found else text


def check_supported(found: list[Token]) -> None:
    """Raises Unsupported for clauses that the embedded engine would silently drop or misdirect."""
    words = [t.upper for t in found] + ["", ""]
    for here, after, then in zip(words, words[1:], words[2:], strict=False):
        if (here, after) == ("WITH", "TOTALS") and then not in ("AS", "("):
            raise Unsupported("WITH TOTALS: the embedded engine drops the row of totals")
        if (here, after) == ("INTO", "OUTFILE"):
            raise Unsupported("INTO OUTFILE: it would write on the server's disk")
    if words[0] == "SET" and "EXTREMES" in words:
        raise Unsupported("setting extremes: the embedded engine drops them")


def parse_set(text: str, found: list[Token]) -> dict[str, str]:
    """Returns a SET statement's settings, name -> literal as written; {} for others."""
    if not found or found[0].upper != "SET":
        return {}
    settings: dict[str, str] = {}
    at, depth = 1, 0
    while at + 2 < len(found) and found[at + 1].upper == "=":
        end = at + 2
        while end < len(found) and (depth or found[end].upper != ","):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(found[end].upper, 0)
            end += 1
        settings[found[at].name] = text[found[at + 2].start : found[end - 1].end]
        at = end + 1
    return settings


def parse_insert(text: str, found: list[Token]) -> InsertData | None:
    """Returns the INSERT that waits for blocks.

    Returns None for other statements and when the data is in the text itself. Raises Unsupported.
    """
    if not found or found[0].upper != "INSERT":
        return None
    at = 1
    while at < len(found) and found[at].upper in ("INTO", "TABLE"):
        at += 1
    if at >= len(found):
        return None
    if found[at].upper == "FUNCTION":
        raise Unsupported("INSERT INTO FUNCTION with data")
    begin, at = at, at + 1
    while at + 1 < len(found) and found[at].upper == ".":
        at += 2
    table = text[found[begin].start : found[at - 1].end]
    columns = None
    if at < len(found) and found[at].upper == "(":
        if at + 1 < len(found) and found[at + 1].upper in _QUERY_WORDS:
            return None
        columns, at = _column_list(found, at + 1)
    end = _data_follows(found, at)
    if end is None:
        return None
    settings = text[found[at].start : found[end - 1].end] if end > at else ""
    return InsertData(text[: found[at - 1].end], settings, table, columns)


def _column_list(found: list[Token], at: int) -> tuple[tuple[str, ...], int]:
    """Returns the names up to the closing parenthesis, and the position after it."""
    names, name = [], ""
    while at < len(found) and found[at].upper != ")":
        token = found[at]
        if token.upper in ("*", "("):
            raise Unsupported("INSERT with an expression in its column list; name the columns")
        if token.upper == ",":
            names.append(name)
            name = ""
        else:
            name += token.name
        at += 1
    return (*names, name), at + 1


def _data_follows(found: list[Token], at: int) -> int | None:
    """Returns the position after the SETTINGS of an INSERT whose rows follow as blocks.

    Returns None for other INSERTs.
    """
    while at < len(found):
        word = found[at].upper
        if word in _QUERY_WORDS or word in ("EXPLAIN", "WATCH"):
            return None  # also for FROM INFILE
        if word in ("VALUES", "FORMAT"):
            rest = len(found) - at - (1 if word == "VALUES" else 2)
            return at if rest <= 0 else None
        at += 1
    return at
