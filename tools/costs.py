"""Computes what a month of Spillway costs, part by part.

The inputs are measured figures, the charts' defaults, and a file of prices.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import disks
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

MONTH = 730 * 3600  # seconds


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Usd(_Section):
    """Prices in US dollars."""

    core_month: float = Field(ge=0)
    disk_gb_month: float = Field(ge=0)
    egress_gb: float = Field(ge=0)


class Assumptions(_Section):
    """Assumptions about the mesh and its servers."""

    headroom: float = Field(ge=1)
    clusters: int = Field(ge=1)
    classes: int = Field(ge=0)
    outside_share: float = Field(ge=0, le=1)
    kafka_compression: float = Field(ge=1)
    kafka_mb_per_s_core: float = Field(gt=0)
    clickhouse_replicas: int = Field(ge=1)


class Prices(_Section):
    """The file of prices."""

    usd: Usd
    assumptions: Assumptions


class PricesError(Exception):
    """The file of prices is unusable.

    The text names the file, each wrong key, and what is allowed.
    """


@dataclass(frozen=True)
class Part:
    """The needs of one part: bought cores, GB of all its disks, GB per month between regions."""

    name: str
    cores: float = 0.0
    disk_gb: float = 0.0
    egress_gb: float = 0.0

    def usd(self, price: Usd) -> dict[str, float]:
        """Returns the cost of a month in US dollars: cpu, disks, egress and all."""
        cpu, disk = self.cores * price.core_month, self.disk_gb * price.disk_gb_month
        egress = self.egress_gb * price.egress_gb
        return {"cpu": cpu, "disks": disk, "egress": egress, "all": cpu + disk + egress}


def read(file: Path) -> Prices:
    """Reads the file of prices. Raises PricesError."""
    try:
        return Prices.model_validate(yaml.safe_load(file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PricesError(f"{file}: {error}") from error
    except ValidationError as error:
        wrong = [
            f"{file}: {'.'.join(map(str, e['loc']))}: {e['msg']}, not {e['input']!r}" for e in error.errors()
        ]
        raise PricesError("\n".join(wrong)) from error


def stores(measured: Mapping[str, float], assumed: Assumptions) -> dict[str, disks.Store]:
    """Returns the stores of Kafka and ClickHouse, by name."""
    values = disks.chart_values("spillway-global")
    pairs = assumed.classes * assumed.clusters
    return {
        "Kafka": disks.kafka(values, measured, assumed.kafka_compression),
        "ClickHouse": disks.clickhouse(values, measured, pairs, assumed.clickhouse_replicas),
    }


def parts(spans: float, measured: Mapping[str, float], assumed: Assumptions) -> Iterator[Part]:
    """Yields the needs of each part at `spans` per second.

    A part has at least what the charts request by default: cores of `requests`, disks of `storage`.
    """
    of_global, of_cluster = (disks.chart_values(f"spillway-{name}") for name in ("global", "cluster"))

    def cores(busy: float, asked: float = 0.0) -> float:
        return max(busy * assumed.headroom, asked)

    collector = _fixed(
        "collectors",
        of_cluster["collector"],
        assumed.clusters * of_cluster["collector"]["autoscaling"]["minReplicas"],
    )
    span_b = measured["kafka_bytes_per_span"] / assumed.kafka_compression
    jobs = _streams(of_global["streams"])
    busy_jobs = spans / measured["admit_spans_per_s_core"] + spans / measured["jobs_spans_per_s_core"]
    rest = [_fixed(name, of_global[name]) for name in ("optimizer", "papa", "publisher")]
    yield Part("filters, in the proxies", cores(spans * measured["filter_us_per_span"] / 1e6))
    busy = spans / measured["collector_spans_per_s_core"]
    yield Part("collectors", cores(busy, collector.cores), collector.disk_gb)
    yield Part("telemetry between regions", egress_gb=spans * assumed.outside_share * span_b * MONTH / 1e9)
    yield from _stores(spans, span_b, of_global, measured, assumed)
    yield Part("streams", cores(busy_jobs, sum(job.cores for job in jobs)))
    yield _fixed("Redis", of_global["bundled"]["redis"], 1)
    yield _fixed("NATS", of_global["bundled"]["nats"])
    yield Part("optimizer, PAPA, publisher", sum(part.cores for part in rest))
    yield _fixed("relays", of_cluster["relay"], of_cluster["relay"]["replicas"] * assumed.clusters)


def _streams(values: Mapping[str, Any]) -> list[Part]:
    """Returns the chart's Deployments of streams: one per job, or the one that runs all jobs."""
    jobs = {name: job for name, job in values.items() if "resources" in job}
    in_one = jobs.pop("all")
    return [_fixed("all", in_one)] if values["mode"] == "all" else [_fixed(*job) for job in jobs.items()]


def _stores(
    spans: float,
    span_b: float,
    values: Mapping[str, Any],
    measured: Mapping[str, float],
    assumed: Assumptions,
) -> Iterator[Part]:
    """Yields Kafka and ClickHouse, with Keeper when there are replicas.

    `span_b`: bytes of a span in Kafka.
    """
    bundled, replicas = values["bundled"], assumed.clickhouse_replicas

    def disk_gb(name: str) -> float:
        store = stores(measured, assumed)[name]
        return store.servers * max(store.disk_b, store.needs_b(spans)) / 1e9

    busy = 2 * spans * span_b * values["kafka"]["replicas"] / 1e6 / assumed.kafka_mb_per_s_core
    asked = sum(_fixed("", pool).cores for pool in bundled["kafka"]["pools"])
    yield Part("Kafka", max(busy * assumed.headroom, asked), disk_gb("Kafka"))
    busy = spans / measured["jobs_spans_per_s_core"] * measured["clickhouse_cpu_per_jobs_cpu"] * replicas
    asked = _fixed("", bundled["clickhouse"], replicas).cores
    keeper = _fixed("Keeper", bundled["clickhouse"]["keeper"]) if replicas > 1 else Part("Keeper")
    yield Part(
        "ClickHouse",
        max(busy * assumed.headroom, asked) + keeper.cores,
        disk_gb("ClickHouse") + keeper.disk_gb,
    )


def _fixed(name: str, workload: Mapping[str, Any], replicas: int | None = None) -> Part:
    """Returns the chart's requests for `replicas` pods, or for the chart's own number."""
    pods = workload["replicas"] if replicas is None else replicas
    cpu = str(workload["resources"]["requests"]["cpu"])
    cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    disk = disks.size_b(workload["storage"]["size"]) if "storage" in workload else 0.0
    return Part(name, pods * cores, pods * disk / 1e9)
