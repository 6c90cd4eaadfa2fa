"""Runs loops side by side. When one of them ends, all are ended."""

import asyncio
from collections.abc import Collection, Coroutine

AGAIN_S = 0.5


async def run_together(*loops: Coroutine) -> None:
    """Runs until one of the loops ends or fails, then ends the others.

    Raises the loops' exceptions as one BaseExceptionGroup. A TaskGroup is not used because it
    cancels each task only once, and waits for ever for a task in which that cancellation was lost.
    """
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    if errors := [error for task in tasks if not task.cancelled() and (error := task.exception())]:
        raise BaseExceptionGroup("loops", errors)


async def end(tasks: Collection[asyncio.Task]) -> None:
    """Cancels the tasks again and again until all of them are done.

    One cancellation is not enough: the clients of NATS and Redis wait in asyncio.wait_for, which
    before Python 3.12 loses a cancellation that arrives together with the answer. If this coroutine
    is cancelled meanwhile, it raises CancelledError only when all tasks are done. An enclosing
    `end` cancels it in this way, every AGAIN_S seconds.
    """
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
        except asyncio.CancelledError as error:
            cancelled = error
            pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        raise cancelled
