"""What spans need and cost, by the figures of docs/measured.json, the charts' defaults and
docs/prices.yaml.

Usage: python tools/sizing.py [--check]                                   docs/operations.md tables
       python tools/sizing.py --usd [--spans N] [--prices FILE] [--json]  a month's costs, printed
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import costs
from disks import DAY

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- made by tools/sizing.py -->", "<!-- end -->"
PRICES = DOCS / "prices.yaml"  # round assumptions
SPANS = 1_000_000  # per second


class Figure(TypedDict):
    """A figure of docs/measured.json: its value, and what measured it."""

    value: float
    by: str


# docs/measured.json: the figures by name, and the machine in words.
Measured = Mapping[str, str | Figure]


def rows(measured: Measured) -> list[tuple[str, str, str, str]]:
    """Returns rows (box, needs, arithmetic, measured by) for SPANS per second.

    Half of all spans are calls, half are edges.
    """
    m = figures(measured)
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


def figures(measured: Measured) -> dict[str, float]:
    """Returns the measured values by name."""
    return {name: entry["value"] for name, entry in measured.items() if isinstance(entry, dict)}


def limits(measured: Measured) -> list[tuple[str, str, str]]:
    """Returns rows (store, spans per second that its default disks hold, arithmetic)."""
    stores = costs.stores(figures(measured), costs.read(PRICES).assumptions)
    return [
        (f"{name}, `bundled.{name.lower()}`", f"{two_digits(store.limit)} spans/s", store.arithmetic)
        for name, store in stores.items()
    ]


def two_digits(spans: float) -> int:
    """Rounds down to two digits."""
    if spans < 1:
        return 0
    unit: int = 10 ** max(0, math.floor(math.log10(spans)) - 1)
    return math.floor(spans / unit) * unit


def tables() -> str:
    """Returns the two tables of docs/operations.md."""
    measured = json.loads((DOCS / "measured.json").read_text())
    needs = ["| | needs | arithmetic | measured by |", "|---|---|---|---|"]
    holds = ["| the charts' default disks | hold | arithmetic |", "|---|---|---|"]
    needs += [f"| {' | '.join(row)} |" for row in rows(measured)]
    holds += [f"| {' | '.join(row)} |" for row in limits(measured)]
    return "\n".join([*needs, "", *holds])


def write(check: bool) -> int:
    """Writes the tables into the page. With `check`, returns 1 when they differ from the page."""
    page = DOCS / "operations.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{tables()}\n{END}{after}"
    if text == page.read_text():
        return 0
    print(f"{'stale' if check else 'wrote'}: {page.name}: python tools/sizing.py", file=sys.stderr)
    if not check:
        page.write_text(text)
    return 1 if check else 0


def bill(spans: float, measured: Mapping[str, float], prices: costs.Prices) -> dict[str, Any]:
    """Returns what `--json` prints.

    It has the needs and the US dollars per month of each part, and what the default disks hold.
    """
    parts = [
        dataclasses.asdict(part) | {"usd": part.usd(prices.usd)}
        for part in costs.parts(spans, measured, prices.assumptions)
    ]
    needs = ("cores", "disk_gb", "egress_gb")
    return {
        "spans_per_s": spans,
        "parts": parts,
        "all": {key: sum(part[key] for part in parts) for key in needs}
        | {"usd": {key: sum(part["usd"][key] for part in parts) for key in parts[0]["usd"]}},
        "default_disks_hold_spans_per_s": {
            name: store.limit for name, store in costs.stores(measured, prices.assumptions).items()
        },
        **prices.model_dump(),
    }


def as_text(bill: Mapping[str, Any], prices: Path) -> str:
    """Formats the bill as a table for people."""
    line = "{:27}" + "{:>11}" * 3 + "{:>9}" * 4
    lines = [
        f"{bill['spans_per_s']:,.0f} spans/s. Prices and assumptions: {prices}",
        line.format("", "", "disks", "egress", "CPU", "disks", "egress", "all"),
        line.format("", "cores", "GB", "GB a month", *["USD"] * 4),
    ]
    for part in [*bill["parts"], {"name": "all"} | bill["all"]]:
        needs = [f"{part['cores']:,.1f}", f"{part['disk_gb']:,.0f}", f"{part['egress_gb']:,.0f}"]
        lines.append(line.format(part["name"], *needs, *(f"{usd:,.0f}" for usd in part["usd"].values())))
    for name, limit in bill["default_disks_hold_spans_per_s"].items():
        lines.append(f"The chart's default disks of {name} hold {two_digits(limit):,} spans/s.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the tables are stale")
    parser.add_argument("--usd", action="store_true", help="print what a month costs; write nothing")
    parser.add_argument("--spans", type=_rate, help=f"per second, all clusters together (default {SPANS})")
    parser.add_argument("--prices", type=Path, help="prices and assumptions (default docs/prices.yaml)")
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    asked = parser.parse_args(arguments)
    of_usd = asked.spans is not None or asked.prices or asked.json
    if asked.check and asked.usd or of_usd and not asked.usd:
        parser.error("--spans, --prices and --json go with --usd, --check goes alone")
    if not asked.usd:
        return write(asked.check)
    file = asked.prices or PRICES
    try:
        prices = costs.read(file)
    except costs.PricesError as error:
        print(error, file=sys.stderr)
        return 64
    made = bill(asked.spans or SPANS, figures(json.loads((DOCS / "measured.json").read_text())), prices)
    print(json.dumps(made) if asked.json else as_text(made, file))
    return 0


def _rate(written: str) -> float:
    try:
        rate = float(written)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{written!r}: must be a number above 0")
    return rate


if __name__ == "__main__":
    sys.exit(main())
