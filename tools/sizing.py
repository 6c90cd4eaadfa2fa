"""The table of docs/operations.md: what a million spans per second need, from docs/measured.json.

Usage: python tools/sizing.py [--check]
"""

import argparse
import json
import math
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- made by tools/sizing.py -->", "<!-- end -->"
SPANS = 1_000_000  # per second
DAY = 86_400


def rows(measured: dict) -> list[tuple[str, str, str, str]]:
    """(box, needs, arithmetic, measured by); half of all spans are calls, half are edges."""
    m = {name: entry["value"] for name, entry in measured.items() if isinstance(entry, dict)}
    by = {name: entry["by"] for name, entry in measured.items() if isinstance(entry, dict)}

    def cores(key: str) -> float:
        return SPANS / m[key]

    jobs, partitions = cores("jobs_spans_per_s_core"), math.ceil(SPANS / m["partition_spans_per_s"])
    stored = SPANS / 2 * (m["calls_bytes_per_row"] + m["edges_bytes_per_row"])
    megabytes = SPANS * m["kafka_bytes_per_span"] / 1e6
    return [
        ("filters, all proxies together", f"{SPANS * m['filter_us_per_span'] / 1e6:.0f} cores",
         f"10⁶ × {m['filter_us_per_span']} µs", by["filter_us_per_span"]),
        ("collectors, all clusters together", f"{cores('collector_spans_per_s_core'):.1f} cores",
         f"10⁶ ÷ {m['collector_spans_per_s_core']}", by["collector_spans_per_s_core"]),
        ("Kafka, spans", f"{2 * megabytes:.0f} MB/s in, per replica", f"2 × 10⁶ × {m['kafka_bytes_per_span']} B",
         by["kafka_bytes_per_span"]),
        ("partitions of every topic", f"{partitions} at least", f"10⁶ ÷ {m['partition_spans_per_s']}, rounded up",
         by["partition_spans_per_s"]),
        ("memory of `exclusive`'s engines", f"{partitions * m['partition_mb'] / 1000:.1f} GB",
         f"{partitions} × {m['partition_mb']} MB", by["partition_mb"]),
        ("`admit`", f"{cores('admit_spans_per_s_core'):.1f} cores", f"10⁶ ÷ {m['admit_spans_per_s_core']}",
         by["admit_spans_per_s_core"]),
        ("`exclusive` alone", f"{cores('exclusive_spans_per_s_core'):.1f} cores",
         f"10⁶ ÷ {m['exclusive_spans_per_s_core']}", by["exclusive_spans_per_s_core"]),
        ("the four jobs behind `admit`", f"{jobs:.1f} cores", f"10⁶ ÷ {m['jobs_spans_per_s_core']}",
         by["jobs_spans_per_s_core"]),
        ("ClickHouse, inserts and merges", f"{jobs * m['clickhouse_cpu_per_jobs_cpu']:.1f} cores",
         f"{jobs:.2f} × {m['clickhouse_cpu_per_jobs_cpu']}", by["clickhouse_cpu_per_jobs_cpu"]),
        ("ClickHouse, `calls` and `edges`", f"{stored * DAY / 1e12:.2f} TB a day, per replica",
         f"½ × 10⁶ × ({m['calls_bytes_per_row']} + {m['edges_bytes_per_row']}) B × {DAY} s",
         by["calls_bytes_per_row"]),
    ]  # fmt: skip


def table() -> str:
    measured = json.loads((DOCS / "measured.json").read_text())
    lines = ["| | needs | arithmetic | measured by |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(measured))])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the table is stale")
    check = parser.parse_args().check
    page = DOCS / "operations.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if text == page.read_text():
        return 0
    print(f"{'stale' if check else 'wrote'}: {page.name}: python tools/sizing.py", file=sys.stderr)
    if not check:
        page.write_text(text)
    return 1 if check else 0


if __name__ == "__main__":
    sys.exit(main())
