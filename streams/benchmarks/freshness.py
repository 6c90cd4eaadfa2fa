"""From a span's end to the load board in Redis. `make bench-freshness`; the last line is JSON.

Small batches of spans that end just now, of a few classes, go to a real collector (OTLP/gRPC),
through Kafka and the jobs to Redis; then the same straight to Kafka, which tells the collector's
share. A batch has arrived when the board's entry of its class is `at` its end or later; boards are
asked for every 5 ms. The proxy's own batching comes before it.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import live
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.servers import clickhouse_process, redis_process

_POLL_S = 0.005
_GIVE_UP_S = 30.0


class Watcher:
    """Knows which batches the board has not shown yet, and how long the others took."""

    def __init__(self, redis: str) -> None:
        self._redis = Redis.from_url(redis)
        self._key = names.REDIS_KEY_LOAD.format(cluster=live.CLUSTER)
        self._waiting: dict[str, list[float]] = {class_id: [] for class_id in live.CLASSES}
        self._lock = threading.Lock()
        self.took_s: list[float] = []
        self.rps: dict[str, float] = {}

    def sent(self, class_id: str, ended_s: float) -> None:
        """Notes a batch that is about to be sent. `ended_s`: Unix seconds."""
        with self._lock:
            self._waiting[class_id].append(ended_s)

    def look(self) -> None:
        """Reads the board, and notes the batches that it shows."""
        board, now = self._redis.hgetall(self._key), time.time()
        for name, text in board.items():
            entry, class_id = LoadBoardEntry.from_json(text), name.decode()
            self.rps[class_id] = entry.rps
            with self._lock:
                waiting = self._waiting.get(class_id, [])
                shown = [ended for ended in waiting if ended <= entry.at + 1e-6]
                self._waiting[class_id] = [ended for ended in waiting if ended > entry.at + 1e-6]
            self.took_s += [now - ended for ended in shown]

    def left(self) -> int:
        """Returns how many batches the board has not shown yet."""
        with self._lock:
            return sum(map(len, self._waiting.values()))


def phase(redis: str, send: Callable[[bytes, int], None], seconds: float, warm_up_s: float) -> dict:
    """Measures one way in.

    Returns the distribution of seconds from the end of a batch to the board, and how many batches
    never came.
    """
    for kept, length in ((False, warm_up_s), (True, seconds)):
        watcher = Watcher(redis)
        sender = threading.Thread(target=live.load, args=(send, watcher.sent, length), daemon=True)
        sender.start()
        began = time.monotonic()
        while sender.is_alive() or (
            kept and watcher.left() and time.monotonic() - began < seconds + _GIVE_UP_S
        ):
            watcher.look()
            if sender.is_alive():
                rps = dict(watcher.rps)
            time.sleep(_POLL_S)
    if not watcher.took_s:
        raise RuntimeError("no batch ever came to the board")
    # Batches that never came count with the time that they were given.
    found = sorted(watcher.took_s + [_GIVE_UP_S] * watcher.left())
    return {
        "p50_s": round(statistics.median(found), 3),
        "p99_s": round(found[min(len(found) * 99 // 100, len(found) - 1)], 3),
        "max_s": round(found[-1], 3),
        "batches": len(found),
        "never": watcher.left(),
        "rps_error": round(max(abs(value / live.RATE_OF_CLASS - 1) for value in rps.values()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-freshness-") as name, ExitStack() as stack:
        folder = Path(name)
        kafka, clickhouse, redis = (
            stack.enter_context(server(folder))
            for server in (kafka_process, clickhouse_process, redis_process)
        )
        urls = live.Urls(kafka.url, clickhouse.url, redis.url)
        live.make_topics(urls)
        for job in ("admit", "exclusive", "curves"):
            stack.enter_context(live.job(job, folder, urls))
        address = stack.enter_context(live.collector(folder, kafka.url))
        result = {"benchmark": "freshness"}
        for way, send in (("", live.to_collector(address)), ("kafka_", live.to_kafka(kafka.url, stack))):
            found = phase(redis.url, send, arguments.seconds, arguments.warm_up)
            print(f"{way or 'collector_'}: {found}", file=sys.stderr, flush=True)
            result |= {f"{way}{key}": value for key, value in found.items()}
    for key, value in result.items():
        print(f"{key:<20}{value}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
