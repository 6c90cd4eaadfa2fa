"""Load in the background, while the caller waits for something or changes something."""

import threading
import time
from dataclasses import replace

from spillway_lab.load import load
from spillway_lab.load.load import Attack, Generator
from spillway_lab.load.samples import Samples, concatenate


class Background:
    """Sends load in a thread until its samples are requested.

    The optimizer proposes nothing without recent load, so a caller that waits for a ruleset needs
    load meanwhile. The load lasts for at least the attacks' seconds, and then until its samples are
    requested, a `with` block ends, or `limit_s` seconds have passed since its start. There is no
    pause in it: pauses of half a second would be falls of the load, to which routes react.
    """

    def __init__(self, attacks: list[Attack], generator: Generator, name: str, limit_s: float) -> None:
        self._attacks, self._generator, self._name = attacks, generator, name
        self._limit_s, self._began = limit_s, time.monotonic()
        self._least_s = max((attack.seconds for attack in attacks), default=0.0)
        self._found: dict[str, Samples] = {}  # by cluster
        self._error: BaseException | None = None
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        attacks = [replace(attack, seconds=max(attack.seconds, self._limit_s)) for attack in self._attacks]
        try:
            self._found = load.run(attacks, self._generator, self._name, is_enough=self._is_enough)
        except BaseException as error:
            self._error = error

    def _is_enough(self) -> bool:
        return self._asked.is_set() and time.monotonic() >= self._began + self._least_s

    def stop(self) -> None:
        """Waits for the attacks' seconds and the answers, and sends no more. Raises nothing."""
        self._asked.set()
        self._thread.join()

    def samples(self) -> Samples:
        """Returns what the clients saw, after all load was sent. Raises the error of the load."""
        return concatenate(self.parts().values())

    def parts(self) -> dict[str, Samples]:
        """Returns the samples by cluster, like `samples`."""
        self.stop()
        if self._error is not None:
            raise self._error
        return self._found
