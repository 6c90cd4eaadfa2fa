"""Something that is done again and again in a thread while a block runs, such as a reading."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], object], period_s: float, name: str) -> Iterator[None]:
    """Calls `act` every `period_s` seconds during the block.

    An error of `act` ends the repetition and is raised at the end of the block, unless the block
    raises itself.
    """
    ended, errors = threading.Event(), list[Exception]()

    def repeat() -> None:
        try:
            while not ended.wait(period_s):
                act()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    for error in errors:
        raise error
