"""Load in the background, while the caller waits for something or changes something."""

import threading
import time
from dataclasses import replace

from spillway_lab.load import load
from spillway_lab.load.load import Attack, Generator
from spillway_lab.load.samples import Samples, concatenate

_MORE_S = 10.0  # seconds of load at a time


class Background:
    """Sends load in a thread until its samples are requested.

    The optimizer proposes nothing without recent load, so a caller that waits for a ruleset needs
    load meanwhile. The load lasts for at least the attacks' seconds. It ends by itself `limit_s`
    seconds after its start if the samples are not requested.
    """

    def __init__(self, attacks: list[Attack], generator: Generator, name: str, limit_s: float) -> None:
        self._attacks, self._generator, self._name = attacks, generator, name
        self._until = time.monotonic() + limit_s
        self._parts: list[tuple[str, Samples]] = []  # with the name of the cluster
        self._error: BaseException | None = None
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        more = [replace(attack, seconds=_MORE_S) for attack in self._attacks]
        try:
            self._send(self._attacks, self._name)
            while not self._asked.is_set() and time.monotonic() < self._until:
                self._send(more, f"{self._name}-{len(self._parts)}")
                if not self._parts:  # all rates are 0
                    self._asked.wait(_MORE_S)
        except BaseException as error:
            self._error = error

    def _send(self, attacks: list[Attack], name: str) -> None:
        self._parts += load.run(attacks, self._generator, name).items()

    def stop(self) -> None:
        """Sends no more, and waits for what is being sent. Raises nothing."""
        self._asked.set()
        self._thread.join()

    def samples(self) -> Samples:
        """Returns what the clients saw, after all load was sent. Raises the error of the load."""
        return concatenate([samples for _, samples in self.parts()])

    def parts(self) -> list[tuple[str, Samples]]:
        """Returns (cluster, samples) for each run of the load generator, like `samples`."""
        self.stop()
        if self._error is not None:
            raise self._error
        return self._parts
