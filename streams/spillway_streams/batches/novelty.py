"""Which rows are worth storing when most say what was said before."""

from collections.abc import Callable


class Novelty:
    """Which rows say something new: values that moved by more than a share, or nothing for a while."""

    def __init__(
        self, identity: tuple[int, ...], values: tuple[int, ...], share: float = 0.01, ms: int = 30_000
    ):
        self._identity, self._values, self._share, self._ms = identity, values, share, ms
        self._last: dict[tuple, tuple] = {}

    def keep(self, rows: list[tuple]) -> list[tuple]:
        """Rows (their first value is their time in ms) worth storing."""
        kept = []
        for row in rows:
            name = tuple(row[i] for i in self._identity)
            if self._is_new(row, self._last.get(name)):
                self._last[name] = row
                kept.append(row)
        return kept

    def forget(self, now_ms: int, is_gone: Callable[[tuple], bool] = lambda _: False) -> None:
        """Names without a row for so long that the next one is news anyway, and whose last row is gone."""
        self._last = {
            name: row for name, row in self._last.items() if now_ms - row[0] < self._ms and not is_gone(row)
        }

    def _is_new(self, row: tuple, last: tuple | None) -> bool:
        if last is None or row[0] - last[0] >= self._ms:
            return True
        for i in self._values:
            if isinstance(row[i], str):
                if row[i] != last[i]:
                    return True
            elif abs(row[i] - last[i]) > self._share * max(abs(last[i]), 1e-9):
                return True
        return False
