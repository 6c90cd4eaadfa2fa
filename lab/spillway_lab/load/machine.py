"""How busy the machine is: processor use and pressure, between two readings of /proc.

Pressure is Linux's PSI (Documentation/accounting/psi.rst): the share of time in which at least one
task waited for a processor. Utilisation alone does not show that: short bursts of work wait for
each other long before all processors are busy.
"""

import time
from dataclasses import dataclass
from pathlib import Path

# A run above one of these is disturbed: what else the machine does decides its result.
MOST_UTILISATION, MOST_PRESSURE = 0.75, 0.20
_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")
# Columns of the line `cpu` of /proc/stat (proc_stat(5)). Later ones are parts of user and nice.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True)
class Reading:
    """Counters since boot at one instant."""

    at_s: float  # monotonic clock
    cores: int
    busy_ticks: int  # of all cores
    all_ticks: int
    waited_us: int | None  # time in which some task waited for a core; None: no PSI


@dataclass(frozen=True)
class Busyness:
    """The machine between two readings. None: not known."""

    cores: int
    utilisation: float | None  # 0 to 1, of all cores
    pressure: float | None  # 0 to 1
    run_delay: float | None = None  # seconds per second that threads that serve requests wait for a core

    @property
    def disturbed(self) -> bool:
        """Whether the machine was too busy for a conclusion. Unknown values do not count."""
        return (self.utilisation or 0) > MOST_UTILISATION or (self.pressure or 0) > MOST_PRESSURE

    def __str__(self) -> str:
        text = f"{self.cores} cores {_percent(self.utilisation)} busy, pressure {_percent(self.pressure)}"
        return text if self.run_delay is None else f"{text}, run delay {_percent(self.run_delay)}"


def read(stat: Path = _STAT, pressure: Path = _PRESSURE) -> Reading:
    """Reads the counters. A file that is absent or unreadable gives 0 ticks, or no pressure."""
    cores, busy, total = parse_stat(_text(stat))
    return Reading(time.monotonic(), cores, busy, total, parse_pressure(_text(pressure)))


def between(before: Reading, after: Reading) -> Busyness:
    """Returns how busy the machine was between two readings."""
    ticks, seconds = after.all_ticks - before.all_ticks, after.at_s - before.at_s
    utilisation = _share((after.busy_ticks - before.busy_ticks) / ticks) if ticks > 0 else None
    pressure = None
    if before.waited_us is not None and after.waited_us is not None and seconds > 0:
        pressure = _share((after.waited_us - before.waited_us) / 1e6 / seconds)
    return Busyness(after.cores, utilisation, pressure)


def together(parts: list[Busyness]) -> Busyness:
    """Returns the mean of several equally long times: how busy the machine was in all of them."""
    return Busyness(
        max((part.cores for part in parts), default=1),
        _mean([part.utilisation for part in parts]),
        _mean([part.pressure for part in parts]),
        _mean([part.run_delay for part in parts]),
    )


def parse_stat(text: str) -> tuple[int, int, int]:
    """Returns (cores, busy ticks, all ticks) from the text of /proc/stat. Stolen time is busy."""
    rows = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    cores = sum(row[0] != "cpu" for row in rows)
    for name, *columns in rows:
        numbers = [int(x) for x in columns[: _STEAL + 1] if x.isdecimal()]
        if name == "cpu" and len(numbers) > _IOWAIT:
            total = sum(numbers)
            return max(cores, 1), total - numbers[_IDLE] - numbers[_IOWAIT], total
    return max(cores, 1), 0, 0


def parse_pressure(text: str) -> int | None:
    """Returns the microseconds of the line `some` of /proc/pressure/cpu. None if there are none."""
    for line in text.splitlines():
        kind, *fields = line.split() or [""]
        value = dict(field.split("=", 1) for field in fields if "=" in field).get("total", "")
        if kind == "some" and value.isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
