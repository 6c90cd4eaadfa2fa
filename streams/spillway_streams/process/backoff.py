"""Trying again until it works, slower each time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from spillway_streams.process.health import Status

T = TypeVar("T")
_FIRST_S, _LONGEST_S = 0.2, 5.0


async def until_done(
    action: Callable[[], Awaitable[T]],
    dependency: str,
    status: Status,
    give_up: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Result of `action`, repeated after every exception but those to `give_up` at; the dependency's status follows."""
    delay = _FIRST_S
    while True:
        try:
            result = await action()
        except give_up:
            status.ok(dependency)
            raise
        except Exception as error:  # whatever a client library raises, the data must not be lost
            status.failed(dependency, f"{type(error).__name__}: {error}")
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_S)
        else:
            status.ok(dependency)
            return result
