"""`eventually` returns the awaited result, and otherwise fails with what was seen."""

import pytest
from spillway_lab.testing.waiting import eventually, eventually_async


def test_the_first_true_result_is_given() -> None:
    """The check is repeated until it is true, and then not again."""
    answers = iter([0, "", None, "there", "later"])
    assert eventually(lambda: next(answers), "an answer") == "there"
    assert next(answers) == "later"


def test_what_never_holds_fails_and_says_what_was_seen() -> None:
    with pytest.raises(AssertionError, match="not within 0 s: a miracle 3 of 4"):
        eventually(lambda: False, "a miracle", 0, lambda: "3 of 4")


def test_an_error_of_the_question_is_not_waited_over() -> None:
    """A check that raises ends the waiting, because a broken check is not an answer."""
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, "a number")


async def test_coroutines_are_awaited() -> None:
    """`eventually_async` takes plain and coroutine functions, and fails in the same way."""
    answers = iter([0, 7])

    async def ask() -> int:
        return next(answers)

    assert await eventually_async(ask, "an answer") == 7
    assert await eventually_async(lambda: 8, "an answer") == 8
    with pytest.raises(AssertionError, match="not within 0 s: a miracle"):
        await eventually_async(lambda: False, "a miracle", 0)
