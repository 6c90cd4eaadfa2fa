"""Sums of a batch's rows per second and key, called parts. Pure.

Parts are what is stored of a batch, and what memory is rebuilt from. They are a function of the
batch alone, so a repeated batch replaces its own parts. A second is the sum of its parts, in
whatever order the batches came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway_streams import StreamsError
from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.batches.strings import Strings

# Upper limit of one sum in one batch. Squares of hours, each weighted with a million requests, come
# to 1e24. Sums within this limit can be added for ever without overflow.
MOST = 1e30
_DENSE = 4  # up to this many possible codes per row, counting is cheaper than sorting


@dataclass(frozen=True)
class Parts:
    """Sums of shape (n, k) per second and key.

    `at` (n,): Unix seconds. `key` (n,): index into `keys`, which are distinct. Rows are ordered by
    key, then by second. Each pair of key and second occurs once.
    """

    at: Ints
    key: Ints
    keys: list[tuple[Any, ...]]
    sums: Floats

    def __len__(self) -> int:
        return len(self.at)

    def columns(self) -> list[NDArray[Any] | Strings]:
        """Returns the columns for a columnar insert.

        These are `at`, then one column per element of the keys, then one per sum.
        """
        named = [column_of(values) for values in zip(*self.keys, strict=True)]
        return [self.at, *(column[self.key] for column in named), *self.sums.T]


class AbsurdRows(StreamsError):
    """Rows that decode but cannot be true. One of them would spoil every sum that includes it."""


def checked(parts: Parts) -> Parts:
    """Returns the parts. Raises AbsurdRows when a sum is not a number, negative or above MOST."""
    wrong = np.argwhere(~((parts.sums >= 0) & (parts.sums <= MOST)))
    if len(wrong):
        row, column = wrong[0]
        raise AbsurdRows(
            f"{' '.join(map(str, parts.keys[parts.key[row]]))}, second {parts.at[row]}: sum {column} is "
            f"{parts.sums[row, column]:g}; must be within 0..{MOST:g}"
        )
    return parts


def column_of(values: Sequence[Any]) -> NDArray[Any] | Strings:
    """Returns text as Strings, and other values as a numpy array."""
    return Strings.of(values) if values and isinstance(values[0], str) else np.array(values)


def fold(at: Ints, by: Sequence[Strings | NDArray[Any]], terms: Sequence[Floats | Bools]) -> Parts:
    """Sums each of `terms` over the rows that share a second and the values of all columns in `by`.

    `at`: seconds, int64 (rows,). `terms`: numbers, each (rows,). Does no Python work per row.
    Raises AbsurdRows when a second is not a Unix second in 0..2^32 - 1 (1970 to 2106).
    """
    rows = len(at)
    if not rows:
        return Parts(np.empty(0, np.int64), np.empty(0, np.int64), [], np.empty((0, len(terms))))
    first, last = int(at.min()), int(at.max())
    if first < 0 or last >= 2**32:
        raise AbsurdRows(f"seconds {first}..{last}: must lie in 0..{2**32 - 1}")
    code, size = np.zeros(rows, np.int64), 1
    for column in by:
        column_codes, count = _codes(column)
        distinct, code = _compact(code * count + column_codes, size * count)
        size = len(distinct)
    example = np.empty(size, np.int64)
    example[code] = np.arange(rows)
    keys = list(zip(*(column[example].tolist() for column in by), strict=True))
    span = last - first + 1
    group, inverse = _compact(code * span + (at - first), size * span)
    sums = [np.bincount(inverse, weights=term, minlength=len(group)) for term in terms]
    return Parts(group % span + first, group // span, keys, np.stack(sums, axis=1))


def _codes(column: Strings | NDArray[Any]) -> tuple[Ints, int]:
    if isinstance(column, Strings):
        return column.codes.astype(np.int64), len(column.values)
    distinct, codes = np.unique(column, return_inverse=True)
    return codes, len(distinct)


def _compact(code: Ints, size: int) -> tuple[Ints, Ints]:
    """Returns the numbers below `size` that occur, ascending, and each row's place among them."""
    if size > _DENSE * len(code) + 1024:
        return np.unique(code, return_inverse=True)
    seen = np.zeros(size, bool)
    seen[code] = True
    place = np.cumsum(seen) - 1
    return np.flatnonzero(seen), place[code]
