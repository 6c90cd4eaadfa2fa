"""What few and small messages cost, job by job. `make bench-trickle`; the last line is JSON.

Two clusters write as their collectors do: many small messages of spans, and the counters of each
Envoy once a second. The jobs run with default settings, on real servers. Processor time is that of
each process with all its threads, first with counters alone (`idle`), then with spans (`load`). The
boards are read meanwhile: how long after its end a batch is shown, and the greatest and least
rate of an entry, as a multiple of the rate that was sent.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import live
import profiling
import trickling
from clickhouse_driver import Client
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.proc import cpu_s
from spillway_lab.testing.servers import Server, clickhouse_process, redis_process

_POLL_S = 0.02
_INSERTS = "SELECT value FROM system.events WHERE event = 'InsertQuery'"


@dataclass
class Boards:
    """Reads the load boards of the clusters."""

    redis: Redis
    rps: float  # of each class
    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def look(self) -> None:
        """Notes how old an entry's time is when it is first shown, and the entry's rate."""
        for cluster in trickling.CLUSTERS:
            found = self.redis.hgetall(names.REDIS_KEY_LOAD.format(cluster=cluster))
            now = time.time()
            for class_id, text in found.items():
                entry, place = LoadBoardEntry.from_json(text), (cluster, class_id)
                if entry.at > self._last.setdefault(place, entry.at):
                    self.waits_s.append(now - entry.at)
                    self.ratios.append(entry.rps / self.rps)
                    self._last[place] = entry.at


@dataclass(frozen=True)
class Spent:
    """Processor seconds and context switches of each process so far, and statements of inserts."""

    at: float
    cpu_s: dict[str, float]
    switches: dict[str, int]
    inserts: int

    def since(self, before: "Spent") -> dict:
        """Returns what was spent per second since an earlier time."""
        seconds = self.at - before.at
        cores = {name: round((cpu - before.cpu_s[name]) / seconds, 4) for name, cpu in self.cpu_s.items()}
        switches = {name: round((n - before.switches[name]) / seconds) for name, n in self.switches.items()}
        return {
            "streams_cores": round(sum(cores[name] for name in cores if name not in _SERVERS), 4),
            "cores": cores,
            "switches_per_s": switches,
            "inserts_per_s": round((self.inserts - before.inserts) / seconds, 1),
        }


_SERVERS = ("kafka", "clickhouse", "redis")


def _switches(pid: int) -> int:
    """Returns how often the threads of a process have waited for something (proc(5))."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        rows = status.read_text().splitlines()
        found += sum(int(row.split()[1]) for row in rows if row.startswith("voluntary_ctxt_switches"))
    return found


def _spent(processes: dict[str, Server], clickhouse: Client) -> Spent:
    pids = {name: server.process.pid for name, server in processes.items() if server.process}
    [(inserts,)] = clickhouse.execute(_INSERTS) or [(0,)]
    return Spent(
        time.monotonic(),
        {name: cpu_s(pid) for name, pid in pids.items()},
        {name: _switches(pid) for name, pid in pids.items()},
        int(inserts),
    )


@contextmanager
def _running(folder: Path, jobs: Sequence[str]) -> Iterator[tuple[dict[str, Server], live.Urls]]:
    with ExitStack() as stack:
        servers = {
            "kafka": stack.enter_context(kafka_process(folder)),
            "clickhouse": stack.enter_context(clickhouse_process(folder)),
            "redis": stack.enter_context(redis_process(folder)),
        }
        urls = live.Urls(**{name: server.url for name, server in servers.items()})
        live.make_topics(urls, trickling.CLUSTERS)
        for job in jobs:
            servers[job] = stack.enter_context(live.job(job, folder, urls, trickling.CLUSTERS))
        yield servers, urls


def measure(arguments: argparse.Namespace, folder: Path) -> dict:
    """Runs the servers, the jobs and the senders once. Returns what was measured."""
    jobs = ("all",) if arguments.all else live.JOBS
    with _running(folder, jobs) as (processes, urls), ExitStack() as stack:
        clickhouse = Client.from_url(urls.clickhouse)
        stack.callback(clickhouse.disconnect)
        counters = trickling.Counters(arguments.rate)
        stack.enter_context(trickling.sending(urls.kafka, counters))
        time.sleep(arguments.warm_up)
        before = _spent(processes, clickhouse)
        time.sleep(arguments.idle)
        idle = _spent(processes, clickhouse).since(before)
        seconds = arguments.warm_up + arguments.seconds + 2
        stack.enter_context(trickling.sending(urls.kafka, trickling.spans_of(arguments.rate, seconds)))
        counters.begin()
        time.sleep(arguments.warm_up)
        for job in jobs if arguments.profile else ():
            profile = profiling.recorder(arguments.profile / f"{job}.txt", "--gil")
            stack.enter_context(profile(processes[job].process.pid))
        boards = Boards(Redis.from_url(urls.redis, decode_responses=True), trickling.rps(arguments.rate))
        before = _spent(processes, clickhouse)
        _until(time.monotonic() + arguments.seconds, boards.look)
        load = _spent(processes, clickhouse).since(before)
    return {
        "benchmark": "trickle",
        "spans_per_s": arguments.rate,
        "streams_cores": load["streams_cores"],
        "idle_streams_cores": idle["streams_cores"],
        "freshness_p50_s": round(statistics.median(boards.waits_s), 3),
        "freshness_p99_s": round(sorted(boards.waits_s)[len(boards.waits_s) * 99 // 100], 3),
        "rate_ratios": [round(min(boards.ratios), 2), round(max(boards.ratios), 2)],
        "load": load,
        "idle": idle,
    }


def _until(end: float, look: Callable[[], None]) -> None:
    while time.monotonic() < end:
        look()
        time.sleep(_POLL_S)


def table(result: dict) -> str:
    """Returns cores and context switches by process as a table for people."""
    lines = [f"{'':<12}{'idle cores':>12}{'load cores':>12}{'idle switches/s':>17}{'load switches/s':>17}"]
    idle, load = result["idle"], result["load"]
    for name, cores in load["cores"].items():
        lines.append(
            f"{name:<12}{idle['cores'][name]:>12}{cores:>12}"
            f"{idle['switches_per_s'][name]:>17}{load['switches_per_s'][name]:>17}"
        )
    lines.append(f"inserts/s: idle {idle['inserts_per_s']}, load {load['inserts_per_s']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="spans per second of both clusters")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the measurement under load")
    parser.add_argument("--idle", type=float, default=20.0, help="length of the measurement without spans")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before each measurement")
    parser.add_argument("--all", action="store_true", help="all jobs in one process")
    parser.add_argument("--profile", type=Path, help="folder for a profile of each job under load")
    arguments = parser.parse_args()
    if arguments.profile:
        arguments.profile.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-trickle-") as folder:
        result = measure(arguments, Path(folder))
    print(table(result), file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
