"""The process that keeps Toxiproxy as planned across its restarts: `python -m spillway_lab wan`."""

import logging
import signal
import threading
from pathlib import Path

from spillway_runtime.health import Report, Server

from spillway_lab.scenario.errors import InvalidInput, LabError
from spillway_lab.stack.wan import Wan, load_plan

log = logging.getLogger("spillway.wan")


class Keeper:
    """Applies the plan once per period. Reads it again when the file has changed.

    `problem` says why the plan is not in force. It is None while the plan is in force.
    """

    def __init__(self, wan: Wan, file: Path, period_s: float = 1.0) -> None:
        self._wan, self._file, self._period_s = wan, file, period_s
        self._read = ""  # the file's text
        self._stopping = threading.Event()
        self.problem: str | None = "not applied yet"

    def run(self) -> None:
        while not self._stopping.is_set():
            self._once()
            self._stopping.wait(self._period_s)

    def stop(self) -> None:
        self._stopping.set()

    def report(self) -> Report:
        """Returns what the health endpoint answers."""
        return Report({"delays": self.problem} if self.problem else {})

    def _reread(self) -> None:
        """Takes a changed plan. Keeps the plan before if the file is wrong."""
        try:
            if (text := self._file.read_text()) != self._read:
                self._wan.plan(load_plan(self._file))
                self._read = text
        except (OSError, UnicodeDecodeError, InvalidInput) as error:
            log.warning("plan not read again: %s", error)

    def _once(self) -> None:
        self._reread()
        try:
            changes = self._wan.apply()
        except LabError as error:
            if self.problem is None or self.problem == "not applied yet":
                log.warning("delays not in force: %s", error)
            self.problem = str(error)
            return
        if changes or self.problem is not None:
            log.info("delays in force after %d changes", changes)
        self.problem = None


def serve(keeper: Keeper, health_listen: str) -> None:
    """Runs until SIGTERM or SIGINT.

    It is ready while the plan is in force.
    """
    server = Server(health_listen, keeper.report)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    try:
        keeper.run()
    finally:
        server.close()
