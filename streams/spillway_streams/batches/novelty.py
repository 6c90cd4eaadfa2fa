"""Selects the rows worth storing, when most rows repeat what is already stored."""

from collections.abc import Callable
from typing import Any

Row = tuple[Any, ...]  # values of any columns; the first is the row's time in ms


class Novelty:
    """Selects rows that say something new.

    A row is new when one of its `values` moved by more than `share` (relative; text: changed at
    all) since the last row kept under its name, or when that row is `ms` milliseconds old.
    `identity` and `values` are positions in a row: `identity` makes up the name.
    """

    def __init__(
        self, identity: tuple[int, ...], values: tuple[int, ...], share: float = 0.01, ms: int = 30_000
    ) -> None:
        self._identity, self._values, self._share, self._ms = identity, values, share, ms
        self._last: dict[tuple[Any, ...], Row] = {}

    def keep(self, rows: list[Row]) -> list[Row]:
        """Returns the rows that are worth storing. The first value of a row is its time in ms."""
        kept = []
        for row in rows:
            name = tuple(row[i] for i in self._identity)
            if self._is_new(row, self._last.get(name)):
                self._last[name] = row
                kept.append(row)
        return kept

    def forget(self, now_ms: int, is_gone: Callable[[Row], bool] = lambda _: False) -> None:
        """Forgets names that need not be remembered.

        These are names whose last kept row is so old that the next row is kept anyway, and names
        whose last kept row is gone (`is_gone`).
        """
        self._last = {
            name: row for name, row in self._last.items() if now_ms - row[0] < self._ms and not is_gone(row)
        }

    def _is_new(self, row: Row, last: Row | None) -> bool:
        if last is None or row[0] - last[0] >= self._ms:
            return True
        for i in self._values:
            if isinstance(row[i], str):
                if row[i] != last[i]:
                    return True
            elif abs(row[i] - last[i]) > self._share * max(abs(last[i]), 1e-9):
                return True
        return False
