"""Waits for a condition instead of for a fixed time.

Tests poll until the condition holds. On failure the message contains what they saw:

    eventually(lambda: job.ready(), "the job is ready")
    await eventually_async(lambda: bucket.get(key), "the key is written", seen=lambda: found)

The timeout only guards against hanging and claims nothing about speed. It should be far longer than
a busy machine needs.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
WAIT_S = 60.0
# For a process that was asked to end.
STOP_S = 30.0
_POLL_S = 0.05


def _nothing() -> object:
    return ""


def eventually(
    check: Callable[[], T],
    what: str,
    seconds: float = WAIT_S,
    seen: Callable[[], object] = _nothing,
    period_s: float = _POLL_S,
) -> T:
    """Returns the first true result of `check`.

    Raises AssertionError with `what` and `seen()` when there is none within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (result := check()):
        _fail_after(deadline, what, seconds, seen)
        time.sleep(period_s)
    return result


async def eventually_async(
    check: Callable[[], T | Awaitable[T]],
    what: str,
    seconds: float = WAIT_S,
    seen: Callable[[], object] = _nothing,
) -> T:
    """Does the same as `eventually` without blocking the event loop.

    `check` may be a coroutine function.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        _fail_after(deadline, what, seconds, seen)
        await asyncio.sleep(_POLL_S)


def _fail_after(deadline: float, what: str, seconds: float, seen: Callable[[], object]) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {seconds:.0f} s: {what} {seen()}".rstrip())
