"""Loops side by side: when one ends, all do."""

import asyncio
from collections.abc import Collection, Coroutine

AGAIN_S = 0.5


async def together(*loops: Coroutine) -> None:
    """Runs until one of the loops ends or fails, and ends the others. Raises what was raised, as a group. (A TaskGroup
    cancels each task once, and waits for ever for one that this cancellation did not reach.)"""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    if errors := [error for task in tasks if not task.cancelled() and (error := task.exception())]:
        raise BaseExceptionGroup("loops", errors)


async def end(tasks: Collection[asyncio.Task]) -> None:
    """Cancels until all are done: before Python 3.12 asyncio.wait_for, in which they wait for answers of NATS, loses a
    cancellation that comes together with the answer. Who ends this task meanwhile, as an `end` around this one does
    after AGAIN_S, is heard when all are done."""
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
