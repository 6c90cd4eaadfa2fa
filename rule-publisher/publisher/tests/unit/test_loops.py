"""Loops side by side end together, even when a cancellation is lost."""

import asyncio

import pytest
from spillway_publisher.process import loops
from spillway_publisher.process.loops import run_together


async def deaf(times: int, ended: list[int]) -> None:
    """Ignores its first `times` cancellations.

    Python 3.11's asyncio.wait_for does the same to one that arrives together with the answer.
    """
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if not times:
                ended.append(1)
                raise
            times -= 1


async def fails() -> None:
    await asyncio.sleep(0)
    raise ConnectionError("gone")


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(loops, "AGAIN_S", 0.01)


async def test_one_that_fails_ends_those_that_hear_it_late():
    ended = []
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(10):
            await run_together(deaf(2, ended), fails(), deaf(0, ended))
    assert [type(error) for error in raised.value.exceptions] == [ConnectionError] and len(ended) == 2


async def test_all_end_with_who_runs_them():
    ended = []
    task = asyncio.create_task(run_together(deaf(1, ended), deaf(3, ended)))
    await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(ended) == 2


async def test_all_end_where_loops_run_loops():
    """The outer `end` cancels again while the inner one is cancelling, which continues."""
    ended = []
    task = asyncio.create_task(run_together(run_together(deaf(3, ended), deaf(9, ended)), deaf(0, ended)))
    await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(ended) == 3
