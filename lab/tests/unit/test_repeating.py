"""What is repeated beside a block runs until its end, and its errors are not lost."""

import threading

import pytest
from spillway_lab.load.repeating import repeating


def test_it_is_repeated_until_the_end_of_the_block() -> None:
    """The block waits for three calls. After the block there are no more."""
    calls, three = [], threading.Event()

    def act() -> None:
        calls.append(None)
        if len(calls) == 3:
            three.set()

    with repeating(act, 0.001, "test"):
        assert three.wait(10)
    count = len(calls)
    assert not any(thread.name == "test" for thread in threading.enumerate())
    assert count >= 3


def test_an_error_is_raised_at_the_end() -> None:
    """The block runs to its end although the first call has failed."""
    failed, reached = threading.Event(), []

    def act() -> None:
        failed.set()
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"), repeating(act, 0.001, "test"):
        assert failed.wait(10)
        reached.append(None)
    assert reached


def test_the_error_of_the_block_comes_first() -> None:
    """An error in the block is raised, not that of the repetition."""
    failed = threading.Event()

    def act() -> None:
        failed.set()
        raise OSError("no such file")

    with pytest.raises(KeyError), repeating(act, 0.001, "test"):
        assert failed.wait(10)
        raise KeyError("block")
