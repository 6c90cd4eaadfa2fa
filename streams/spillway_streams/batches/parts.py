"""Rows of a batch summed per second and key: what is stored of a batch, and what memory is made of. Pure.

A batch's parts are a function of the batch alone, so a batch that comes again replaces its own parts, and a
second is the sum of its parts whatever order the batches came in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway_streams import StreamsError
from spillway_streams.batches.strings import Strings

# Of one sum in one batch: squares of hours, each for a million requests, come to 1e24. Seconds can be added up for ever.
MOST = 1e30
_DENSE = 4  # a numbering with at most so many holes per row is cheaper to count through than to sort


@dataclass(frozen=True)
class Parts:
    """Sums (n, k) per second `at` (n,) and key; `key` (n,) indexes `keys`, which are distinct. Rows are ordered
    by key and second; each pair of the two occurs once."""

    at: np.ndarray
    key: np.ndarray
    keys: list[tuple]
    sums: np.ndarray

    def __len__(self) -> int:
        return len(self.at)

    def columns(self) -> list[np.ndarray | Strings]:
        """at, then one column per element of the keys, then one per sum, for a columnar insert."""
        named = [column_of(values) for values in zip(*self.keys, strict=True)]
        return [self.at, *(column[self.key] for column in named), *self.sums.T]


class AbsurdRows(StreamsError):
    """Rows that decode but cannot be true: one of them would spoil every sum that it is part of."""


def checked(parts: Parts) -> Parts:
    """Raises AbsurdRows when a sum is no number, negative or beyond MOST."""
    wrong = np.argwhere(~((parts.sums >= 0) & (parts.sums <= MOST)))
    if len(wrong):
        row, column = wrong[0]
        raise AbsurdRows(
            f"{' '.join(map(str, parts.keys[parts.key[row]]))}, second {parts.at[row]}: sum {column} is "
            f"{parts.sums[row, column]:g}, must be within 0..{MOST:g}"
        )
    return parts


def column_of(values: Sequence) -> np.ndarray | Strings:
    return Strings.of(values) if values and isinstance(values[0], str) else np.array(values)


def fold(at: np.ndarray, by: Sequence[Strings | np.ndarray], terms: Sequence[np.ndarray]) -> Parts:
    """Sums of each of `terms`, any numbers (rows,), over the rows that share a second `at`, int64 (rows,), and the
    values of all columns in `by`. No Python work per row. Raises AbsurdRows when a second is no Unix second of 1970 to
    2105."""
    rows = len(at)
    if not rows:
        return Parts(np.empty(0, np.int64), np.empty(0, np.int64), [], np.empty((0, len(terms))))
    first, last = int(at.min()), int(at.max())
    if first < 0 or last >= 2**32:
        raise AbsurdRows(f"seconds {first}..{last}: must lie in 0..{2**32 - 1}")
    code, size = np.zeros(rows, np.int64), 1
    for column in by:
        own, count = _codes(column)
        distinct, code = _compact(code * count + own, size * count)
        size = len(distinct)
    example = np.empty(size, np.int64)
    example[code] = np.arange(rows)
    keys = list(zip(*(column[example].tolist() for column in by), strict=True))
    span = last - first + 1
    group, inverse = _compact(code * span + (at - first), size * span)
    sums = [np.bincount(inverse, weights=term, minlength=len(group)) for term in terms]
    return Parts(group % span + first, group // span, keys, np.stack(sums, axis=1))


def _codes(column: Strings | np.ndarray) -> tuple[np.ndarray, int]:
    if isinstance(column, Strings):
        return column.codes.astype(np.int64), len(column.values)
    distinct, codes = np.unique(column, return_inverse=True)
    return codes, len(distinct)


def _compact(code: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers below `size` that occur, ascending, and each row's place among them."""
    if size > _DENSE * len(code) + 1024:
        return np.unique(code, return_inverse=True)
    seen = np.zeros(size, bool)
    seen[code] = True
    place = np.cumsum(seen) - 1
    return np.flatnonzero(seen), place[code]
