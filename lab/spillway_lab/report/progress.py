"""Progress output: a live line on a terminal, and plain lines at longer intervals elsewhere."""

import sys
import time

_PLAIN_EVERY_S = 10.0


class Progress:
    """Shows on stderr how far a long operation is."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._stage = ""
        self._began = self._printed = time.monotonic()

    def stage(self, name: str) -> None:
        self._stage, self._began, self._printed = name, time.monotonic(), 0.0

    def show(self, text: str) -> None:
        line = f"{self._stage:<22} {time.monotonic() - self._began:4.0f} s  {text}"
        if self._live:
            print(f"\r\x1b[K{line[:160]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._printed > _PLAIN_EVERY_S:
            self._printed = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        clear = "\r\x1b[K" if self._live else ""
        print(
            f"{clear}{self._stage:<22} {time.monotonic() - self._began:4.0f} s  {text}",
            file=sys.stderr,
            flush=True,
        )

    def starting(self, ready: int, total: int, waiting: list[str]) -> None:
        """Shows how many processes are ready. It is the callback for Supervisor.wait_ready."""
        self._stage = "stack"
        self.show(
            f"{ready} of {total} processes ready"
            + (f"; waiting for {', '.join(waiting[:4])}" if waiting else "")
        )
