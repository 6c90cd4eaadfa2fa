"""Computes what spans leave on the disks of Kafka and ClickHouse.

Also computes the rate that the charts' default disks hold.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CLICKHOUSE = ROOT / "contracts" / "clickhouse"
FILL = 0.8  # no disk is planned to be fuller than this share
DAY = 86_400
_UNITS = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Store:
    """Servers that keep what spans leave.

    `disk_b`: bytes of the chart's disk of one server. `per_rate_b`: bytes that one server keeps for
    each span per second. `fixed_b`: bytes that do not depend on spans.
    """

    servers: int
    disk_b: float
    per_rate_b: float
    fixed_b: float
    arithmetic: str

    def needs_b(self, spans_per_s: float) -> float:
        """Returns the bytes of one server's disk that is then full up to FILL."""
        return (spans_per_s * self.per_rate_b + self.fixed_b) / FILL

    @property
    def limit(self) -> float:
        """Spans per second with which the chart's disk is full up to FILL."""
        return max(0.0, (self.disk_b * FILL - self.fixed_b) / self.per_rate_b)


def kafka(values: Mapping[str, Any], measured: Mapping[str, float], compression: float) -> Store:
    """Returns the store of the bundled brokers.

    A span is in two topics, in `kafka.replicas` copies each, until the retention ends.
    """
    pools = [pool for pool in values["bundled"]["kafka"]["pools"] if "broker" in pool["roles"]]
    brokers, copies = sum(pool["replicas"] for pool in pools), values["kafka"]["replicas"]
    disk = min(size_b(pool["storage"]["size"]) for pool in pools)
    seconds, span = retention_s(), measured["kafka_bytes_per_span"]
    arithmetic = (
        f"{brokers} × {disk / 2**30:.0f} GiB × {FILL} ÷ ({copies} copies × 2 × {span} B × {seconds:.0f} s)"
    )
    if compression != 1:
        arithmetic += f" × {compression:g}, compression"
    return Store(brokers, disk, copies * 2 * span * seconds / compression / brokers, 0.0, arithmetic)


def clickhouse(
    values: Mapping[str, Any], measured: Mapping[str, float], classes: int, replicas: int
) -> Store:
    """Returns the store of the bundled servers, each of which has all rows.

    `classes`: the number of pairs of class and cluster, which have rows in `load_parts`.
    """
    disk = size_b(values["bundled"]["clickhouse"]["storage"]["size"])
    calls, edges = kept_days("calls"), kept_days("edges")
    span = (measured["calls_bytes_per_row"] * calls + measured["edges_bytes_per_row"] * edges) / 2
    fixed = classes * measured["load_parts_mb_per_class_day"] * 1e6 * kept_days("load_parts")
    arithmetic = (
        f"({disk / 2**30:.0f} GiB × {FILL} − {fixed / 1e9:.0f} GB of `load_parts`, {classes} classes) ÷ (½ × "
    )
    arithmetic += f"({calls} × {measured['calls_bytes_per_row']} + {edges} × {measured['edges_bytes_per_row']}) B × {DAY} s)"
    return Store(replicas, disk, span * DAY, fixed, arithmetic)


def chart_values(chart: str) -> dict:
    return yaml.safe_load((ROOT / "infra" / "helm" / chart / "values.yaml").read_text())


def size_b(quantity: str) -> float:
    """Returns the bytes of a volume's size in Kubernetes notation."""
    return float(quantity[:-2]) * _UNITS[quantity[-2:]]


def retention_s() -> float:
    """Returns the longest time that a span is kept, from the declaration of the topics.

    A segment is deleted as a whole.
    """
    declared = yaml.safe_load((ROOT / "infra" / "kafka" / "topics.yaml").read_text())
    config = declared["otlp_spans"]["config"]
    return (config["retention.ms"] + config["segment.ms"]) / 1000


def kept_days(table: str) -> int:
    """Returns how many days a table's rows stay: its TTL and one more day.

    A partition of a day is dropped as a whole.
    """
    [file] = CLICKHOUSE.glob(f"*_{table}.sql")
    _only(r"^PARTITION BY (toDate)\(", file)
    return int(_only(r"^TTL stored_at \+ INTERVAL (\d+) DAY", file)) + 1


def _only(pattern: str, file: Path) -> str:
    found = re.findall(pattern, file.read_text(), re.M)
    if len(found) != 1:
        raise ValueError(f"{file.relative_to(ROOT)}: {pattern!r} is there {len(found)} times, not once")
    return found[0]
