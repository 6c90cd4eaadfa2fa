"""Decides whether work is worth a thread of its own."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# Rows that are processed at once, in the thread of the event loop. They take a few milliseconds,
# and less than the decoding of one large message, which also happens there.
_FEW = 2000


def is_worth_a_thread(rows: int) -> bool:
    """Whether work on this many rows is long enough to be handed over to a thread."""
    return rows > _FEW


async def run(rows: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of work on this many rows, which runs in a thread if it is worth one."""
    if is_worth_a_thread(rows):
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)
