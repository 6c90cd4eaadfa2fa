"""Spans per CPU second, from Kafka to ClickHouse. `make bench-streams`; the last line is JSON.

One backlog in a real broker, read in turns by our jobs (until every row is in ClickHouse, which is
checked) and by the collector's Kafka receiver with its spanmetrics connector; between them decoding
and exclusive times alone. CPU is user and system time of the process with all its threads, less
what it takes to start with nothing to read.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import backlog
import profiling
import sides
from spillway_lab.testing.kafka import PARTITIONS, kafka_process

_SIDES = ("streams", "compute", "collector")


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """Returns the results of every side, one per round."""
    found: dict[str, list[dict]] = {side: [] for side in _SIDES if side not in arguments.without}
    with kafka_process(folder) as kafka:
        streams = sides.Streams(folder, kafka.url, tuple(arguments.jobs))
        collector = sides.Spanmetrics(folder, kafka.url) if "collector" in found else None
        start_cpu_s = streams.start_up()
        others = collector.start_up() if collector else 0.0
        _say(f"start: {start_cpu_s}, collector {others:.2f} CPU s")
        began = time.perf_counter()
        truth = backlog.fill(kafka.url, arguments.spans, arguments.rate)
        _say(f"{truth} written in {time.perf_counter() - began:.0f} s")
        for n in range(arguments.rounds):
            if "streams" in found:
                profile = profiling.recorder(arguments.profile) if arguments.profile else None
                found["streams"].append(
                    streams.run(truth, start_cpu_s, profile) | {"start_cpu_s": start_cpu_s}
                )
            if "compute" in found:
                found["compute"].append(_compute(arguments))
            if collector:
                found["collector"].append(collector.run(truth, others))
            for side, runs in found.items():
                _say(f"round {n + 1}, {side}: {json.dumps(runs[-1])}")
    return found


def _compute(arguments: argparse.Namespace) -> dict:
    program = str(Path(__file__).with_name("compute.py"))
    command = [sys.executable, program, "--rate", str(arguments.rate / PARTITIONS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def summary(found: dict[str, list[dict]]) -> dict:
    """Returns the results in short.

    These are medians, the least and the greatest value of each rate, and ratios of neighbouring
    runs.
    """
    result: dict = {"benchmark": "streams"}
    keys = {side: f"{side}_spans_per_s_core" for side in found} | {"streams": "spans_per_s_core"}
    for side, runs in found.items():
        rates = [run["spans_per_s_core"] for run in runs]
        result[keys[side]] = round(statistics.median(rates))
        result[f"{side}_spread"] = [round(min(rates)), round(max(rates))]
    if "streams" in found:
        result |= _streams(found["streams"])
    if {"streams", "collector"} <= found.keys():
        pairs = zip(found["streams"], found["collector"], strict=True)
        ratios = [run["spans_per_s_core"] / other["spans_per_s_core"] for run, other in pairs]
        result["ratio_to_collector"] = round(statistics.median(ratios), 2)
        result["ratio_to_collector_spread"] = [round(min(ratios), 2), round(max(ratios), 2)]
        result["collector_peak_rss_mb"] = max(run["peak_rss_mb"] for run in found["collector"])
    return result


def _streams(runs: list[dict]) -> dict:
    middle = sorted(runs, key=lambda run: run["spans_per_s_core"])[len(runs) // 2]
    return {
        "spans": middle["spans"],
        "rounds": len(runs),
        "peak_rss_mb": max(run["peak_rss_mb"]["exclusive"] for run in runs),
        "jobs_spans_per_s_core": round(statistics.median(run["jobs_spans_per_s_core"] for run in runs)),
        "spans_per_s": round(statistics.median(run["spans_per_s"] for run in runs)),
        "cpu_s": middle["cpu_s"],
        "clickhouse_cpu_s": middle["clickhouse_cpu_s"],
        "jobs_peak_rss_mb": middle["peak_rss_mb"],
        "rss_mb_by_quarter": middle["rss_mb_by_quarter"],
    }


def table(result: dict) -> str:
    """Returns the summary as a table for people."""
    rows = [
        ("end to end, job exclusive", "spans_per_s_core", "streams_spread"),
        ("compute alone", "compute_spans_per_s_core", "compute_spread"),
        ("collector, spanmetrics", "collector_spans_per_s_core", "collector_spread"),
    ]
    lines = [f"{'spans per CPU second':<28}{'median':>12}{'least':>12}{'most':>12}"]
    for name, key, spread in rows:
        if key in result:
            low, high = result[spread]
            lines.append(f"{name:<28}{result[key]:>12,}{low:>12,}{high:>12,}")
    shown = {key: value for key, value in result.items() if key not in {k for row in rows for k in row}}
    return "\n".join(lines + [f"{key:<28}{value}" for key, value in shown.items()])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=100_000, help="spans per second of the log's time")
    parser.add_argument("--jobs", nargs="+", default=list(sides.JOBS), choices=sides.JOBS)
    parser.add_argument("--without", nargs="+", default=[], choices=_SIDES)
    parser.add_argument("--profile", type=Path, help="file for a profile of the job exclusive")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as folder:
        result = summary(measure(arguments, Path(folder)))
    _say(table(result))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
