"""Finds the rows that a table never accepts, so that the other rows of an INSERT can be stored."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from spillway_streams import StreamsError

Table = dict[str, Any]  # columns by name (numpy arrays, Strings)
Row = tuple[Any, ...]
Rows = Sequence[Row] | Callable[[], Sequence[Row]]  # rows, or a function that returns rows
Block = Table | Rows
B = TypeVar("B", Table, Rows)
# Called with refused rows: their table, the reason, their number, and the rows as JSON lines.
Refused = Callable[[str, str, int, bytes], Awaitable[None]]
_MAX_TRIES = 1000  # attempts per INSERT; enough to find 50 bad rows among 100 000
_MAX_ROWS = 500  # rows per dead letter, about 0.1 MB


class RefusedRows(StreamsError):
    """Rows that cannot be stored, however often it is tried."""


async def insert(
    table: str,
    names: Sequence[str],
    blocks: list[B],
    put: Callable[[list[B]], Awaitable[None]],
    refused: Refused,
) -> None:
    """Passes all blocks to `put` at once, and isolates the rows that it refuses.

    When `put` raises RefusedRows, each block is tried alone, then its halves, down to single rows.
    Bad rows that use up _MAX_TRIES attempts are no accident: from then on a refused block goes to
    `refused` whole, with the good rows in it.
    """
    waiting, tries = [blocks], 0
    while waiting:
        some = waiting.pop()
        try:
            tries += 1
            await put(some)
        except RefusedRows as error:
            if len(some) > 1:
                waiting += [[block] for block in reversed(some)]
                continue
            [block] = some
            rows = length(block)
            if rows > 1 and tries < _MAX_TRIES:
                waiting += [[_cut(block, rows // 2, rows)], [_cut(block, 0, rows // 2)]]
                continue
            for first in range(0, rows, _MAX_ROWS):
                part = _cut(block, first, min(first + _MAX_ROWS, rows))
                await refused(table, str(error), length(part), b"\n".join(_lines(names, part)))


def length(block: Block) -> int:
    """Returns the number of rows of a block."""
    if isinstance(block, dict):
        return len(next(iter(block.values())))
    return len(block() if callable(block) else block)


@overload
def _cut(block: Table, first: int, end: int) -> Table: ...
@overload
def _cut(block: Rows, first: int, end: int) -> Rows: ...
def _cut(block: Block, first: int, end: int) -> Block:
    if isinstance(block, dict):
        return {name: column[first:end] for name, column in block.items()}
    if callable(block):
        return lambda: block()[first:end]  # made anew at each attempt, like the whole block
    return block[first:end]


def _lines(names: Sequence[str], block: Block) -> Iterator[bytes]:
    rows: Iterable[Row]
    if isinstance(block, dict):
        rows = zip(*map(_plain, block.values()), strict=True)
    else:
        rows = block() if callable(block) else block
    for row in rows:
        yield json.dumps(dict(zip(names, row, strict=True)), default=str).encode()


def _plain(column: Any) -> list[Any]:
    if isinstance(column, np.ndarray) and column.ndim == 2:  # ids, as fixed-width text
        return [bytes(row).rstrip(b"\0").decode("latin-1") for row in column]
    return column.tolist() if hasattr(column, "tolist") else list(column)
