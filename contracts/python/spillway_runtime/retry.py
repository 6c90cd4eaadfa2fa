"""Retries an action until it succeeds, with growing delays."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from spillway_runtime.status import Status

T = TypeVar("T")
_FIRST_S, _LONGEST_S = 0.2, 5.0


async def until_done(
    action: Callable[[], Awaitable[T]],
    dependency: str,
    status: Status,
    give_up: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Returns the result of `action`, which is retried after every exception except `give_up`.

    The delay between attempts grows from 0.2 s to 5 s. The status of `dependency` follows the
    outcome of each attempt. An exception of `give_up` is raised, and counts as an answer of the
    dependency.
    """
    delay = _FIRST_S
    while True:
        try:
            result = await action()
        except give_up:
            status.ok(dependency)
            raise
        except Exception as error:  # the data must not be lost, whatever a client library raises
            status.failed(dependency, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_S)
        else:
            status.ok(dependency)
            return result
