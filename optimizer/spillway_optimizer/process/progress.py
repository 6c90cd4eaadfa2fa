"""Progress messages on stderr for commands that take longer than a moment."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

_PATIENCE_S, _AGAIN_S = 1.0, 5.0


class Progress:
    """Reports the steps of a command.

    A step is silent for `patience_s` (1 s by default). After that, its name is printed at once, the
    elapsed time every 5 s, and the total time at the end.
    """

    def __init__(self, stream: TextIO | None = None, patience_s: float = _PATIENCE_S):
        self._stream, self._patience_s = stream or sys.stderr, patience_s

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Context manager around one step; `what` names it in the messages."""
        ended, began = threading.Event(), time.monotonic()
        watcher = threading.Thread(target=self._watch, args=(what, ended, began), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _watch(self, what: str, ended: threading.Event, began: float) -> None:
        if ended.wait(self._patience_s):
            return
        self.write(f"{what} ...")
        while not ended.wait(_AGAIN_S):
            self.write(f"{what} ... {time.monotonic() - began:.0f} s")
        self.write(f"{what}: {time.monotonic() - began:.1f} s")
