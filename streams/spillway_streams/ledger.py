"""Which messages of a partition may be acknowledged: strictly in order, once nothing needs them.

Acknowledging in order is what makes a committed offset mean "all before it is stored".
"""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Ledger(Generic[T]):
    """Messages by offset with the number of things that still hold each."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, offset: int, message: T, holders: int) -> None:
        """A new message, later than all before it; zero holders: nothing needs it."""
        self._held[offset] = (message, holders)

    def release(self, offset: int) -> None:
        """One holder less. An offset that is not held (another owner's) is ignored."""
        if offset in self._held:
            message, holders = self._held[offset]
            self._held[offset] = (message, holders - 1)

    def take_done(self) -> list[T]:
        """Removes and returns the messages, oldest first, up to the first that is still held."""
        done = []
        while self._held and next(iter(self._held.values()))[1] <= 0:
            done.append(self._held.popitem(last=False)[1][0])
        return done
