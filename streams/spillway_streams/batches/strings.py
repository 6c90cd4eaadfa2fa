"""Columns of text as numbers: how batches carry services, clusters and classes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np


class Strings:
    """A column of text: `codes`, int32 of shape (n,), index `values`, a list of distinct strings.

    Group by `codes` and look names up once per group. Elsewhere it acts like an array of str: indices and masks
    take rows (the values stay), `==` gives a mask, numpy functions see an array of objects.
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: np.ndarray, values: Sequence[str]) -> None:
        self.codes = codes
        self.values = list(values)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Strings":
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int32)
        return cls(codes, list(known))

    @classmethod
    def concat(cls, parts: Sequence["Strings"]) -> "Strings":
        known: dict[str, int] = {}
        codes = [part.renumber(known) for part in parts]
        return cls(np.concatenate(codes) if codes else np.empty(0, np.int32), list(known))

    def renumber(self, known: dict[str, int]) -> np.ndarray:
        """Codes, int32 (n,), in a numbering that several batches share; values it lacks are added to it."""
        table = np.array([known.setdefault(value, len(known)) for value in self.values], dtype=np.int32)
        return table[self.codes] if len(table) else self.codes

    def compact(self) -> "Strings":
        """The same texts with only the values that occur."""
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = np.array([*self.values, None], dtype=object)[:-1]
        return values[self.codes] if len(self.values) else np.empty(0, dtype=object)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str):
            code = self.values.index(other) if other in self.values else -1
            return self.codes == code
        return np.asarray(self) == np.asarray(other)

    __hash__ = None  # type: ignore[assignment]
