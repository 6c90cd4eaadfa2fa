"""The two sides that are measured on one backlog.

One is our jobs, until their rows are in ClickHouse. The other is the collector's Kafka receiver
with its spanmetrics connector, until it has read everything.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import backlog
import broker
from clickhouse_driver import Client
from measured import Watch
from spans import Truth
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS
from spillway_lab.testing.proc import cpu_s
from spillway_lab.testing.servers import ROOT, Server, clickhouse_process, free_port, healthy, redis_process
from spillway_lab.testing.waiting import eventually

JOBS = ("exclusive", "classify", "curves", "graph")
_COLLECTOR = ROOT / "collectors" / "benchmarks" / "spanmetrics"
_TIMEOUT_S = 3_600.0
# Queries for how many spans a job has stored. The job is done when these are all of them.
_STORED = {
    "exclusive": "SELECT (SELECT count() FROM calls) + (SELECT count() FROM edges)",
    "curves": "SELECT toUInt64(sum(arrivals)) FROM load_parts",
    "graph": "SELECT toUInt64(sum(calls)) FROM edge_parts",
}
_EXACT = "SELECT uniqExact(trace_id, span_id), count() FROM {} FINAL"


class Streams:
    """Our jobs, one process each, with a ClickHouse of their own.

    `kafka` is shared with the side that they are compared to.
    """

    def __init__(self, folder: Path, kafka: str, jobs: tuple[str, ...]) -> None:
        self._folder, self._kafka, self._jobs = folder, kafka, jobs

    def start_up(self) -> dict[str, float]:
        """Returns the CPU seconds that each job takes until it is ready.

        There is nothing to read at that time.
        """
        with self._running() as (watches, _):
            return {name: watch.cpu_s() for name, watch in watches.items()}

    def run(self, truth: Truth, before: dict[str, float], profile=None) -> dict:
        """Runs the jobs until the last row is stored. Returns what was measured.

        `before`: the result of start_up(), which is subtracted.
        """
        wanted = {"exclusive": truth.calls + truth.edges, "curves": truth.calls, "graph": truth.edges}
        backlog.again(self._kafka, [f"spillway-{job}" for job in self._jobs])
        began = time.perf_counter()
        with self._running() as (watches, clickhouse), ExitStack() as stack:
            client = Client.from_url(clickhouse.url)
            stack.callback(client.disconnect)
            if profile:
                stack.enter_context(profile(watches["exclusive"].pid))
            cpu, wall = {}, {}
            left = list(self._jobs)
            while left:
                for job in [job for job in left if self._is_done(job, client, wanted, left)]:
                    cpu[job] = watches[job].cpu_s() - before[job]
                    wall[job] = time.perf_counter() - began
                    left.remove(job)
                for watch in watches.values():
                    watch.pid  # noqa: B018 - raises when the process has ended
                if time.perf_counter() - began > _TIMEOUT_S:
                    raise RuntimeError(f"not done: {left}")
                time.sleep(0.2)
            self._check(client, truth)
            return {
                "spans": truth.spans,
                "spans_per_s_core": truth.spans / cpu["exclusive"],
                "jobs_spans_per_s_core": truth.spans / sum(cpu.values()),
                "spans_per_s": truth.spans / wall["exclusive"],
                "cpu_s": {name: round(seconds, 2) for name, seconds in cpu.items()},
                "clickhouse_cpu_s": round(cpu_s(clickhouse.process.pid), 2),
                "peak_rss_mb": {name: round(watch.peak_mb()) for name, watch in watches.items()},
                "rss_mb_by_quarter": {name: watch.quarters_mb() for name, watch in watches.items()},
            }

    def _is_done(self, job: str, client: Client, wanted: dict[str, int], left: list[str]) -> bool:
        if job in _STORED:
            [(stored,)] = client.execute(_STORED[job])
            return stored >= wanted[job]
        if "exclusive" in left:  # `exclusive` still writes more for it to read
            return False
        topics = (names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES)
        return all(broker.lag(self._kafka, f"spillway-{job}", topic) == 0 for topic in topics)

    def _check(self, client: Client, truth: Truth) -> None:
        for table, expected in (("calls", truth.calls), ("edges", truth.edges)):
            if client.execute(_EXACT.format(table)) != [(expected, expected)]:
                raise RuntimeError(f"{table}: not the {expected} rows that were sent")

    @contextmanager
    def _running(self) -> Iterator[tuple[dict[str, Watch], Server]]:
        folder = self._folder / f"run-{time.monotonic_ns()}"
        with ExitStack() as stack:
            clickhouse = stack.enter_context(clickhouse_process(folder))
            redis = stack.enter_context(redis_process(folder))
            watches = {}
            for name in self._jobs:
                server = _job(name, folder, self._kafka, clickhouse.url, redis.url)
                server.start()
                watches[name] = Watch(name, server)
                stack.callback(watches[name].stop)
            yield watches, clickhouse


def _job(name: str, folder: Path, kafka: str, clickhouse: str, redis: str) -> Server:
    port = free_port()
    return Server(
        url=f"http://127.0.0.1:{port}",
        command=[sys.executable, "-m", "spillway_streams", name],
        log=folder / f"{name}.log",
        ready=lambda: healthy(port),
        environment={
            "SPILLWAY_KAFKA": kafka,
            "SPILLWAY_CLICKHOUSE_URL": clickhouse,
            "SPILLWAY_REDIS_URL": redis,
            "SPILLWAY_STATE_DIR": str(folder / name),
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}",
            "SPILLWAY_STREAMS_TOPIC_PARTITIONS": str(PARTITIONS),
            "SPILLWAY_STREAMS_ACCEPT_UNADMITTED": "true",  # the backlog has several clusters
        },
    )


class Spanmetrics:
    """The collector, which turns the same topic into metrics."""

    _GROUP = "spanmetrics"

    def __init__(self, folder: Path, kafka: str) -> None:
        self._folder, self._kafka = folder, kafka
        self._program = ROOT / ".spillway" / "bin" / "spanmetrics-collector"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(_COLLECTOR / "build"), str(self._program)], check=True)

    def start_up(self) -> float:
        """Returns the CPU seconds that the collector takes until it is ready."""
        with self._running() as watch:
            return watch.cpu_s()

    def run(self, truth: Truth, before: float) -> dict:
        """Runs the collector until the last message is acknowledged. Returns what was measured.

        `before`: the result of start_up(), which is subtracted.
        """
        broker.rewind(self._kafka, self._GROUP, backlog.TOPIC)
        began = time.perf_counter()
        with self._running() as watch:
            eventually(self._is_done, "the collector has read everything", _TIMEOUT_S, period_s=0.5)
            cpu = watch.cpu_s() - before
            return {
                "spans_per_s_core": truth.spans / cpu,
                "spans_per_s": truth.spans / (time.perf_counter() - began),
                "cpu_s": round(cpu, 2),
                "peak_rss_mb": round(watch.peak_mb()),
                "rss_mb_by_quarter": watch.quarters_mb(),
            }

    def _is_done(self) -> bool:
        return broker.lag(self._kafka, self._GROUP, backlog.TOPIC) == 0

    @contextmanager
    def _running(self) -> Iterator[Watch]:
        port = free_port()
        server = Server(
            url=f"http://127.0.0.1:{port}",
            command=[str(self._program), "--config", str(_COLLECTOR / "config.yaml")],
            log=self._folder / "spanmetrics.log",
            ready=lambda: healthy(port),
            environment={
                "SPANMETRICS_KAFKA": self._kafka,
                "SPANMETRICS_HEALTH_LISTEN": f"127.0.0.1:{port}",
            },
        )
        server.start()
        watch = Watch("spanmetrics", server)
        try:
            yield watch
        finally:
            watch.stop()
