"""Spans per second of one core, from OTLP/gRPC in to Kafka. `make bench-collector`; the last line
is JSON.

A real collector on one core, a real broker, batches as the filter sends them. Two phases: as fast
as the collector answers (throughput), then at a constant rate (latency of the export call). CPU is
the collector's own user and system time until its last span is in Kafka, so work that is queued is
paid for.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import payload
import stack
from spillway_lab.testing import proc
from spillway_lab.testing.kafka import kafka_process

_KEYS = (
    *("spans_per_s_core", "spans_per_message", "cpu_us_per_span", "spans_per_s", "bytes_per_message"),
    *(
        "kafka_bytes_per_span",
        "export_p50_ms",
        "export_p99_ms",
        "rss_mb",
        "refused",
        "duplicates",
        "sender_cpu",
    ),
)


def phase(topic: stack.Topic, pid: int, address: str, batches: int, spans_per_s: float, log: Path) -> dict:
    """Measures one load, from the first export until its last span is in Kafka.

    Raises RuntimeError when the sender fails or an accepted span is missing in Kafka.
    """
    load = stack.sender(address, batches, spans_per_s)
    before, disk = topic.ends(), _size(log)
    time.sleep(1.0)  # the sender generates its batches
    cpu, began = proc.cpu_s(pid), time.perf_counter()
    output, _ = load.communicate("go\n")
    if load.returncode:
        raise RuntimeError(f"the sender ended with {load.returncode}")
    sent = json.loads(output)
    wall = topic.settled() - began
    cpu = proc.cpu_s(pid) - cpu
    messages, arrived, size = topic.content(before)
    spans = sent["sent"] * payload.SPANS
    if arrived < spans:
        raise RuntimeError(f"{spans} spans were accepted, {arrived} are in Kafka")
    latencies = sorted(sent["latencies_s"])
    return {
        "spans": spans,
        "spans_per_s_core": round(spans / cpu),
        "cpu_us_per_span": round(cpu / spans * 1e6, 2),
        "spans_per_s": round(spans / wall),
        "spans_per_message": round(arrived / messages, 1),
        "bytes_per_message": round(size / messages),
        "kafka_bytes_per_span": round((_size(log) - disk) / arrived),
        "export_p50_ms": round(latencies[len(latencies) // 2] * 1e3, 2),
        "export_p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 2),
        "rss_mb": round(proc.memory_mb(pid, "VmHWM")),
        "refused": sent["refused"],
        "duplicates": arrived - spans,
        "sender_cpu": round(sent["cpu_share"], 2),
    }


def _size(folder: Path) -> int:
    """Returns the bytes of all segments of the cluster's topic."""
    return sum(segment.stat().st_size for segment in folder.glob(f"{stack.TOPIC}-*/*.log"))


def measure(setup: stack.Setup, spans: int, share: float) -> dict[str, dict]:
    """Runs both phases with servers of their own.

    The constant rate is `share` of the throughput that the first phase measured.
    """
    with tempfile.TemporaryDirectory(prefix="bench-collector-") as name, kafka_process(Path(name)) as kafka:
        log = Path(name) / "kafka" / "data"
        topic = stack.Topic(kafka.url)
        running = stack.collector(Path(name) / "collector", kafka.url, setup)
        server, address = running.server, running.address
        server.start()
        try:
            pid = server.process.pid
            # creates the topic, the connections and the heap
            phase(topic, pid, address, 40, 0.0, log)
            full = phase(topic, pid, address, spans // payload.SPANS, 0.0, log)
            rate = share * full["spans_per_s"]
            paced = phase(topic, pid, address, int(rate * 8) // payload.SPANS, rate, log)
        finally:
            server.stop()
    return {"full": full, "paced": paced}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=600_000)
    parser.add_argument(
        "--share", type=float, default=0.5, help="constant rate, as a share of the throughput"
    )
    parser.add_argument("--box", type=Path, default=stack.BOX, help="folder of run and config.yaml")
    parser.add_argument("--binaries", type=Path, default=stack.BOX.parent / ".spillway" / "bin")
    parser.add_argument("--set", action="append", default=[], help="setting over config.yaml, 'a::b: value'")
    arguments = parser.parse_args()
    setup = stack.Setup(arguments.box, arguments.binaries, arguments.set)
    found = measure(setup, arguments.spans, arguments.share)
    print(f"{'':22}{'full speed':>14}{'constant rate':>16}")
    for key in _KEYS:
        print(f"{key:22}{found['full'][key]:>14}{found['paced'][key]:>16}")
    full, paced = found["full"], found["paced"]
    if full["sender_cpu"] > 0.9:
        print("the sender was at its limit: the collector could do more", file=sys.stderr)
    head = {key: full[key] for key in _KEYS} | {key: paced[key] for key in ("export_p50_ms", "export_p99_ms")}
    print(json.dumps({"benchmark": "collector", "spans": full["spans"], **head, "constant_rate": paced}))


if __name__ == "__main__":
    main()
