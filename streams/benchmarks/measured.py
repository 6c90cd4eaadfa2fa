"""Watches the CPU time and the memory of a process."""

import threading
from dataclasses import dataclass, field

from spillway_lab.testing.proc import cpu_s, memory_mb
from spillway_lab.testing.servers import Server

_PERIOD_S = 0.25


@dataclass
class Watch:
    """One running process.

    `rss_mb` gets a sample every quarter of a second until `stop`.
    """

    name: str
    server: Server
    rss_mb: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        if self.server.process is None or self.server.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended:\n{self.server.log.read_text()[-2000:]}")
        return self.server.process.pid

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def peak_mb(self) -> float:
        return memory_mb(self.pid, "VmHWM")

    def _sample(self) -> None:
        while not self._over.wait(_PERIOD_S):
            try:
                self.rss_mb.append(memory_mb(self.pid, "VmRSS"))
            except (OSError, RuntimeError, ValueError):
                return

    def stop(self) -> None:
        """Ends the sampling and stops the process."""
        self._over.set()
        self._thread.join()
        self.server.stop()

    def quarters_mb(self) -> list[int]:
        """Returns the largest resident set (MB) in each quarter of the time.

        Memory is flat when the later quarters are alike.
        """
        n = len(self.rss_mb)
        bounds = [n * i // 4 for i in range(5)]
        return [round(max(self.rss_mb[a:b], default=0)) for a, b in zip(bounds, bounds[1:], strict=False)]
