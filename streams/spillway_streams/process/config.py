"""Settings, read once at start from environment variables with the prefix SPILLWAY_."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator
from spillway_contracts.wires import ClickHouseWire, KafkaWire, RedisWire
from spillway_runtime.settings import HostPort, Settings

from spillway_streams.process import cluster_topics

TICK_MS = 500  # length of a tick; log time is cut into ticks


class TopicsSettings(KafkaWire, Settings):
    """Settings of the command `topics`."""

    topic_replicas: int = Field(1, ge=1, le=10, description="of topics that do not exist yet")

    @property
    def brokers(self) -> list[str]:
        return self.kafka.split(",")


class ClickHouseSettings(ClickHouseWire, Settings):
    """Settings of the command `classes`."""

    clickhouse_url: str = Field(description="clickhouse://user:pass@host:port/database")


class JobSettings(TopicsSettings):
    """Settings of every job. Addresses and identities have no default."""

    state_dir: Path
    health_listen: HostPort
    topic_partitions: int = Field(4, ge=1, le=1024)


class StoringSettings(JobSettings, ClickHouseSettings):
    """Settings of every job that stores rows."""


class AdmissionSettings(Settings):
    """Settings of the jobs that read the topics of all clusters."""

    accept_unadmitted: bool = Field(
        False, description="take messages that `admit` has not written: while collectors of 0.1.0 write them"
    )


class AdmitSettings(JobSettings):
    """Settings of the job `admit`."""

    clusters: str = Field(description="names, separated by commas: whose topics are read")

    @field_validator("clusters")
    @classmethod
    def _clusters(cls, value: str) -> str:
        try:
            found = cluster_topics.clusters(value)
        except cluster_topics.ClustersError as error:
            raise ValueError(str(error)) from None
        if not found:
            raise ValueError("must name at least one cluster")
        return value

    @property
    def cluster_names(self) -> list[str]:
        return cluster_topics.clusters(self.clusters)


class HotSettings(RedisWire, StoringSettings, AdmissionSettings):
    """Settings of jobs that also write boards. Seconds are event time unless said otherwise."""

    redis_url: str = Field(description="redis://:pass@host:port/0")
    board_period: float = Field(0.25, gt=0, le=60, description="wall seconds between boards")
    board_window: int = Field(5, ge=1, le=60, description="a board covers this many whole seconds")
    board_settle: float = Field(
        1.0, ge=0, le=30, description="seconds are counted for a rate once they are this old"
    )
    store_period: float = Field(1.0, gt=0, le=60, description="wall seconds between inserts of parts")
    max_keys: int = Field(
        5000, ge=10, description="classes by cluster, and edges, remembered per topic partition"
    )
    board_expiry: float = Field(15.0, gt=0, le=3600, description="wall seconds until a board is forgotten")
    unknown_after: float = Field(
        10.0, gt=0, le=600, description="seconds after which what is not heard of is unknown"
    )
    unknown_hold: float = Field(
        3600.0,
        gt=0,
        le=86_400,
        description="seconds for which boards keep the last known values of it, where it has no Envoys",
    )
    lateness: float = Field(
        2.0, ge=0, le=60, description="seconds behind the newest call that are still filling"
    )


class ExclusiveSettings(StoringSettings, AdmissionSettings):
    """Settings of the job `exclusive`.

    Seconds are log time unless said otherwise. REFERENCE.md explains what follows from them.
    """

    window: float = Field(2.0, gt=0, le=60, description="silent seconds after which a trace closes")
    hold: float = Field(
        10.0, gt=0, le=600, description="seconds that a client span waits for its server span"
    )
    life: float = Field(30.0, gt=0, le=3600, description="seconds after which a trace closes, silent or not")
    remember: float = Field(60.0, gt=0, le=3600, description="seconds after that in which repeats are known")
    clock_skew: float = Field(
        1.0, ge=0, le=60, description="seconds that this host's and the brokers' clocks may differ"
    )
    flush_period: float = Field(0.2, gt=0, le=10, description="wall seconds between looks at what closed")
    arrivals_period: float = Field(0.2, gt=0, le=10, description="wall seconds between batches of arrivals")
    max_trace_spans: int = Field(20_000, ge=10)
    max_tick_spans: int = Field(
        80_000, ge=100, description="spans of traces first seen in one tick; the rest close at its end"
    )
    max_unstored_rows: int = Field(
        400_000, ge=1000, description="spans read ahead of what is stored; then consumption pauses"
    )
    classes_per_service: int = Field(200, ge=1, le=10_000)
    span_sample: float = Field(0.01, ge=0, le=1, description="share of traces whose raw spans are stored")

    @model_validator(mode="after")
    def _times(self) -> "ExclusiveSettings":
        times = {name: getattr(self, name) for name in ("window", "hold", "life", "remember")}
        odd = [f"{name} {value}" for name, value in times.items() if value * 1000 % TICK_MS]
        names = "SPILLWAY_WINDOW, _HOLD, _LIFE, _REMEMBER"
        if odd:
            raise ValueError(f"{names}: {', '.join(odd)}: must be multiples of {TICK_MS / 1000} s")
        if sorted(times.values()) != list(times.values()):
            raise ValueError(f"{names}: {times}: each must be at least the one before")
        return self


class CurvesSettings(HotSettings):
    """Settings of the job `curves`."""

    fit_period: float = Field(5.0, gt=0, le=600, description="wall seconds between fits")
    memory_seconds: int = Field(3600, ge=60, le=86_400, description="seconds with data that are remembered")
    max_key_seconds: int = Field(
        500_000, ge=1000, description="seconds of all classes remembered per topic partition"
    )
    capacity_seconds: int = Field(
        600, ge=10, le=86_400, description="seconds with data that capacity is taken from"
    )
    min_samples: int = Field(30, ge=2, description="samples that make a utilisation bucket count")
    shift_window: int = Field(60, ge=5, description="seconds of data that a shift is taken from")


class GraphSettings(HotSettings):
    """Settings of the job `graph`."""

    graph_window: int = Field(
        30, ge=1, le=3600, description="call ratios and network times cover these seconds"
    )
    graph_period: float = Field(5.0, gt=0, le=600, description="wall seconds between rows")


class ClassifySettings(StoringSettings):
    """Settings of the job `classify`. Seconds are wall-clock time."""

    class_period: float = Field(30.0, gt=0, le=3600, description="between decisions")
    class_memory: float = Field(1800.0, ge=1, le=86_400, description="what decisions rest on")
    class_confirm: int = Field(3, ge=1, le=100, description="decisions in a row before classes merge or part")
    class_min_samples: int = Field(300, ge=50, description="good calls of a class before it is judged")
    class_lease: float = Field(3600.0, ge=1, le=86_400, description="how long rare classes stay in /other")
    classes_per_service: int = Field(200, ge=1, le=10_000)
