"""What admission costs: from a cluster's topic to the topic of all clusters. `make
bench-admission`; the last line is JSON.

A backlog of one cluster in a real broker, admitted by one worker. CPU is user and system time of
the process with all its threads, less what it takes to start with nothing to read.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import backlog
import broker
from measured import Watch
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS, kafka_process
from spillway_lab.testing.proc import cpu_s
from spillway_lab.testing.servers import Server, free_port, healthy

CLUSTER, _GROUP = "west", "spillway-admit"
TOPIC = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=CLUSTER)
_TIMEOUT_S = 1800.0


@contextmanager
def admit(folder: Path, kafka: str) -> Iterator[Watch]:
    """Runs the job `admit` for one cluster. Yields a watch on its process."""
    port = free_port()
    server = Server(
        url=f"http://127.0.0.1:{port}",
        command=[sys.executable, "-m", "spillway_streams", "admit"],
        log=folder / "admit.log",
        ready=lambda: healthy(port),
        environment={
            "SPILLWAY_KAFKA": kafka,
            "SPILLWAY_CLUSTERS": CLUSTER,
            "SPILLWAY_STATE_DIR": str(folder / "admit"),
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}",
        },
    )
    server.start()
    watch = Watch("admit", server)
    try:
        yield watch
    finally:
        watch.stop()


def measure(spans: int, folder: Path) -> dict:
    """Admits a backlog of so many spans. Returns what that cost."""
    with kafka_process(folder) as kafka:
        broker.create(kafka.url, {names.KAFKA_TOPIC_OTLP_SPANS: PARTITIONS, "otlp_metrics.west": PARTITIONS})
        truth = backlog.fill(kafka.url, 4 * PARTITIONS, 1000.0, TOPIC)
        with admit(folder, kafka.url) as watch:
            time.sleep(3.0)
            before = watch.cpu_s()
        broker.delete(kafka.url, [TOPIC])
        truth = backlog.fill(kafka.url, spans, 100_000.0, TOPIC)
        broker_before, began = cpu_s(kafka.process.pid), time.perf_counter()
        with admit(folder, kafka.url) as watch:
            while broker.lag(kafka.url, _GROUP, TOPIC) != 0:
                if time.perf_counter() - began > _TIMEOUT_S:
                    raise RuntimeError((folder / "admit.log").read_text()[-3000:])
                time.sleep(0.2)
            cpu, wall = watch.cpu_s() - before, time.perf_counter() - began
            peak = watch.peak_mb()
        messages = sum(broker.ends(kafka.url, TOPIC).values())
        return {
            "benchmark": "admission",
            "spans": truth.spans,
            "messages": messages,
            "cpu_s": round(cpu, 2),
            "start_cpu_s": round(before, 2),
            "us_per_span": round(cpu / truth.spans * 1e6, 3),
            "spans_per_s_core": round(truth.spans / cpu),
            "spans_per_s": round(truth.spans / wall),
            "peak_rss_mb": round(peak),
            "broker_cpu_s": round(cpu_s(kafka.process.pid) - broker_before, 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-admission-") as folder:
        result = measure(arguments.spans, Path(folder))
    for key, value in result.items():
        print(f"{key:<20}{value}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
