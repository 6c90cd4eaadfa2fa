"""How old the load boards are while requests are sent, from readings of Redis.

`make bench-freshness` sends batches of its own. Here proxies send them: a board that is `at` a
later time than before shows a batch that ended at that time. The arithmetic is pure.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import LoadBoardEntry

from spillway_lab.load.repeating import repeating

PERIOD_S = 0.02

Place = tuple[str, str]  # cluster, class


@dataclass(frozen=True)
class Reading:
    """Unix seconds of one reading, and the `at` of every entry of the boards."""

    read_s: float
    at_s: dict[Place, float]


@dataclass
class Boards:
    """Readings in the order in which they were made."""

    readings: list[Reading] = field(default_factory=list)


def waits_s(readings: Sequence[Reading]) -> list[float]:
    """Returns the seconds from the end of each batch until the boards showed it.

    One value for every step of an entry. For each entry also the seconds since its last step, so
    that boards that have stopped are not left out.
    """
    found: list[float] = []
    last: dict[Place, tuple[float, float]] = {}  # at, and when it was first read
    for reading in readings:
        for place, at in reading.at_s.items():
            if place not in last:
                last[place] = at, reading.read_s
            elif at > last[place][0]:
                found.append(reading.read_s - at)
                last[place] = at, reading.read_s
    return found + [readings[-1].read_s - stepped_s for _, stepped_s in last.values()]


def ages_s(readings: Sequence[Reading]) -> list[float]:
    """Returns the age in seconds of each entry at each reading: what a reader of the boards meets.

    It includes the time that spans wait in their proxies. An entry that has expired keeps its time.
    """
    found: list[float] = []
    last: dict[Place, float] = {}
    for reading in readings:
        last |= reading.at_s
        found += [reading.read_s - at for at in last.values()]
    return found


def percentile_s(seconds: Sequence[float], share: float) -> float:
    """Returns a percentile in seconds, for example of 0.99; NaN of nothing."""
    return float(np.quantile(seconds, share)) if len(seconds) else float("nan")


@contextmanager
def watching(url: str, clusters: Sequence[str]) -> Iterator[Boards]:
    """Reads the load boards of the clusters during the block, every PERIOD_S seconds.

    Raises the error of Redis or of an entry at the end of the block.
    """
    boards = Boards()
    with (
        closing(Redis.from_url(url, socket_timeout=5)) as redis,
        repeating(lambda: boards.readings.append(_read(redis, clusters)), PERIOD_S, "boards"),
    ):
        yield boards


def _read(redis: Redis, clusters: Sequence[str]) -> Reading:
    asked = redis.pipeline(transaction=False)
    for cluster in clusters:
        asked.hgetall(names.REDIS_KEY_LOAD.format(cluster=cluster))
    found = asked.execute()
    return Reading(
        time.time(),
        {
            (cluster, class_id.decode()): LoadBoardEntry.from_json(text).at
            for cluster, board in zip(clusters, found, strict=True)
            for class_id, text in board.items()
        },
    )
