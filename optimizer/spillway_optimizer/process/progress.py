"""What a command is doing, on stderr, once it takes long enough for somebody to wonder."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

_PATIENCE_S, _AGAIN_S = 1.0, 5.0


class Progress:
    """step(): silent while short; after a second it says what is going on, then every five how long it has taken."""

    def __init__(self, stream: TextIO | None = None, patience_s: float = _PATIENCE_S):
        self._stream, self._patience_s = stream or sys.stderr, patience_s

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        ended, began = threading.Event(), time.monotonic()
        watcher = threading.Thread(target=self._watch, args=(what, ended, began), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _watch(self, what: str, ended: threading.Event, began: float) -> None:
        if ended.wait(self._patience_s):
            return
        self.say(f"{what} ...")
        while not ended.wait(_AGAIN_S):
            self.say(f"{what} ... {time.monotonic() - began:.0f} s")
        self.say(f"{what}: {time.monotonic() - began:.1f} s")
