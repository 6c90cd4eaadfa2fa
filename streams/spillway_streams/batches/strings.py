"""Columns of text as integer codes. Batches carry services, clusters and classes in this form."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway_streams.batches.arrays import Codes


class Strings:
    """A column of text.

    `codes`, int32 of shape (n,), are indices into `values`, a list of distinct strings. Group rows
    by `codes` and look names up once per group. Otherwise the column acts like an array of str:
    indices and masks select rows (the values stay), `==` returns a mask, and numpy functions see an
    array of objects.
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: Codes, values: Sequence[str]) -> None:
        self.codes = codes
        self.values = list(values)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Strings":
        """Returns a column of these texts; values are in order of first occurrence."""
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int32)
        return cls(codes, list(known))

    @classmethod
    def concat(cls, parts: Sequence["Strings"]) -> "Strings":
        """Joins columns into one with a common list of values."""
        known: dict[str, int] = {}
        codes = [part.renumber(known) for part in parts]
        return cls(np.concatenate(codes) if codes else np.empty(0, np.int32), list(known))

    def renumber(self, known: dict[str, int]) -> Codes:
        """Returns codes, int32 (n,), in the numbering `known`, which several batches share.

        Values that `known` lacks are added to it.
        """
        table = np.array([known.setdefault(value, len(known)) for value in self.values], dtype=np.int32)
        return table[self.codes] if len(table) else self.codes

    def compact(self) -> "Strings":
        """Returns the same texts, with only the values that occur."""
        used = np.zeros(len(self.values), dtype=bool)
        used[self.codes] = True
        kept = np.flatnonzero(used)
        table = np.cumsum(used, dtype=np.int32) - 1
        return Strings(table[self.codes] if len(used) else self.codes, [self.values[i] for i in kept])

    def tolist(self) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes.tolist()]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __getitem__(self, which: Any) -> Any:
        found = self.codes[which]
        return self.values[int(found)] if found.ndim == 0 else Strings(found, self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.object_]:
        values = np.array([*self.values, None], dtype=object)[:-1]
        return values[self.codes] if len(self.values) else np.empty(0, dtype=object)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str):
            code = self.values.index(other) if other in self.values else -1
            return self.codes == code
        return np.asarray(self) == np.asarray(other)

    __hash__ = None  # type: ignore[assignment]
