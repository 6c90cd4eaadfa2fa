"""Settings, read once at start from environment variables with the prefix SPILLWAY_."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator
from spillway_contracts.wires import ClickHouseWire, KafkaWire, RedisWire
from spillway_runtime.box import Box
from spillway_runtime.settings import HostPort, Settings, tuning

from spillway_streams.process import cluster_topics

TICK_MS = 500  # length of a tick; log time is cut into ticks


class TopicsSettings(KafkaWire, Settings):
    """Settings of the command `topics`."""

    topic_replicas: int = tuning(
        "STREAMS_TOPIC_REPLICAS",
        "replicas of topics that do not exist yet; the file of `topics` precedes it",
        1,
        was="TOPIC_REPLICAS",
        ge=1,
        le=10,
    )

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
    topic_partitions: int = tuning(
        "STREAMS_TOPIC_PARTITIONS",
        "partitions of topics that do not exist yet",
        4,
        was="TOPIC_PARTITIONS",
        ge=1,
        le=1024,
    )


class StoringSettings(JobSettings, ClickHouseSettings):
    """Settings of every job that stores rows."""


class AdmissionSettings(Settings):
    """Settings of the jobs that read the topics of all clusters."""

    accept_unadmitted: bool = tuning(
        "STREAMS_ACCEPT_UNADMITTED",
        "take messages that `admit` has not written, while collectors of 0.1.0 write to the topics of all clusters",
        False,
        was="ACCEPT_UNADMITTED",
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
    board_period_s: float = tuning(
        "STREAMS_BOARD_PERIOD_S", "wall time between boards", 0.25, was="BOARD_PERIOD", gt=0, le=60
    )
    board_window_s: int = tuning(
        "STREAMS_BOARD_WINDOW_S", "whole seconds that a board covers", 5, was="BOARD_WINDOW", ge=1, le=60
    )
    board_settle_s: float = tuning(
        "STREAMS_BOARD_SETTLE_S",
        "age at which seconds count for a rate",
        1.0,
        was="BOARD_SETTLE",
        ge=0,
        le=30,
    )
    store_period_s: float = tuning(
        "STREAMS_STORE_PERIOD_S", "wall time between inserts", 1.0, was="STORE_PERIOD", gt=0, le=60
    )
    max_keys: int = tuning(
        "STREAMS_MAX_KEYS", "classes by cluster, and edges, per partition", 5000, was="MAX_KEYS", ge=10
    )
    board_expiry_s: float = tuning(
        "STREAMS_BOARD_EXPIRY_S",
        "wall time after which a board is forgotten",
        15.0,
        was="BOARD_EXPIRY",
        gt=0,
        le=3600,
    )
    unknown_after_s: float = tuning(
        "STREAMS_UNKNOWN_AFTER_S",
        "time without telemetry after which something is unknown",
        10.0,
        was="UNKNOWN_AFTER",
        gt=0,
        le=600,
    )
    unknown_hold_s: float = tuning(
        "STREAMS_UNKNOWN_HOLD_S",
        "how long the last known values of a class or service stay on boards where it has no Envoys",
        3600.0,
        was="UNKNOWN_HOLD",
        gt=0,
        le=86_400,
    )
    lateness_s: float = tuning(
        "STREAMS_LATENESS_S",
        "seconds behind the newest call that are still filling",
        2.0,
        was="LATENESS",
        ge=0,
        le=60,
    )


class ClassesSettings(Settings):
    """Settings of the jobs that bound the classes of a service."""

    classes_per_service: int = tuning(
        "STREAMS_CLASSES_PER_SERVICE",
        "classes of a service; more fall into `/other`",
        200,
        was="CLASSES_PER_SERVICE",
        ge=1,
        le=10_000,
    )


class ExclusiveSettings(StoringSettings, AdmissionSettings, ClassesSettings):
    """Settings of the job `exclusive`.

    Seconds are log time unless said otherwise. REFERENCE.md explains what follows from them.
    """

    window_s: float = tuning(
        "STREAMS_WINDOW_S", "silence after which a trace closes", 2.0, was="WINDOW", gt=0, le=60
    )
    hold_s: float = tuning(
        "STREAMS_HOLD_S", "how long a client span waits for its server span", 10.0, was="HOLD", gt=0, le=600
    )
    life_s: float = tuning(
        "STREAMS_LIFE_S", "age at which a trace closes, silent or not", 30.0, was="LIFE", gt=0, le=3600
    )
    remember_s: float = tuning(
        "STREAMS_REMEMBER_S", "how long repeats of a span are recognised", 60.0, was="REMEMBER", gt=0, le=3600
    )
    clock_skew_s: float = tuning(
        "STREAMS_CLOCK_SKEW_S",
        "how far this host's and the brokers' clocks may differ",
        1.0,
        was="CLOCK_SKEW",
        ge=0,
        le=60,
    )
    flush_period_s: float = tuning(
        "STREAMS_FLUSH_PERIOD_S",
        "wall time between closing traces",
        0.2,
        was="FLUSH_PERIOD",
        gt=0,
        le=10,
    )
    insert_period_s: float = tuning(
        "STREAMS_INSERT_PERIOD_S",
        "wall time that calls, edges and spans wait for an insert; many rows wait less",
        2.0,
        ge=0,
        le=60,
    )
    arrivals_period_s: float = tuning(
        "STREAMS_ARRIVALS_PERIOD_S",
        "wall time between batches of arrivals",
        0.2,
        was="ARRIVALS_PERIOD",
        gt=0,
        le=10,
    )
    max_trace_spans: int = tuning(
        "STREAMS_MAX_TRACE_SPANS", "spans at which a trace closes", 20_000, was="MAX_TRACE_SPANS", ge=10
    )
    max_tick_spans: int = tuning(
        "STREAMS_MAX_TICK_SPANS",
        "spans of traces first seen in one tick; the rest close at its end",
        80_000,
        was="MAX_TICK_SPANS",
        ge=100,
    )
    max_unstored_rows: int = tuning(
        "STREAMS_MAX_UNSTORED_ROWS",
        "spans read ahead of what is stored; then consumption pauses",
        400_000,
        was="MAX_UNSTORED_ROWS",
        ge=1000,
    )
    span_sample_share: float = tuning(
        "STREAMS_SPAN_SAMPLE_SHARE",
        "share of traces whose raw spans are stored",
        0.01,
        was="SPAN_SAMPLE",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _times(self) -> "ExclusiveSettings":
        times = {name: getattr(self, name) for name in ("window_s", "hold_s", "life_s", "remember_s")}
        odd = [f"{name}: {value}" for name, value in times.items() if value * 1000 % TICK_MS]
        names = "SPILLWAY_STREAMS_WINDOW_S, _HOLD_S, _LIFE_S, _REMEMBER_S"
        if odd:
            raise ValueError(f"{names}: {', '.join(odd)}: must be multiples of {TICK_MS / 1000} s")
        if sorted(times.values()) != list(times.values()):
            raise ValueError(f"{names}: {times}: each must be at least the previous one")
        return self


class CurvesSettings(HotSettings):
    """Settings of the job `curves`."""

    fit_period_s: float = tuning(
        "STREAMS_FIT_PERIOD_S", "wall time between fits", 5.0, was="FIT_PERIOD", gt=0, le=600
    )
    memory_s: int = tuning(
        "STREAMS_MEMORY_S",
        "seconds with data of any class of a service that are remembered",
        3600,
        was="MEMORY_SECONDS",
        ge=60,
        le=86_400,
    )
    max_key_seconds: int = tuning(
        "STREAMS_MAX_KEY_SECONDS",
        "seconds of all classes per partition",
        500_000,
        was="MAX_KEY_SECONDS",
        ge=1000,
    )
    capacity_s: int = tuning(
        "STREAMS_CAPACITY_S",
        "seconds with data that capacity is taken from",
        600,
        was="CAPACITY_SECONDS",
        ge=10,
        le=86_400,
    )
    min_samples: int = tuning(
        "STREAMS_MIN_SAMPLES", "samples that make a utilisation bucket count", 30, was="MIN_SAMPLES", ge=2
    )
    shift_window_s: int = tuning(
        "STREAMS_SHIFT_WINDOW_S", "seconds of data that a shift is taken from", 60, was="SHIFT_WINDOW", ge=5
    )


class GraphSettings(HotSettings):
    """Settings of the job `graph`."""

    graph_window_s: int = tuning(
        "STREAMS_GRAPH_WINDOW_S",
        "seconds that call ratios and network times cover",
        30,
        was="GRAPH_WINDOW",
        ge=1,
        le=3600,
    )
    graph_period_s: float = tuning(
        "STREAMS_GRAPH_PERIOD_S", "wall time between rows", 5.0, was="GRAPH_PERIOD", gt=0, le=600
    )


class ClassifySettings(StoringSettings, ClassesSettings):
    """Settings of the job `classify`. Seconds are wall-clock time."""

    class_period_s: float = tuning(
        "STREAMS_CLASS_PERIOD_S", "time between decisions", 30.0, was="CLASS_PERIOD", gt=0, le=3600
    )
    class_memory_s: float = tuning(
        "STREAMS_CLASS_MEMORY_S",
        "age of the oldest calls that decide",
        1800.0,
        was="CLASS_MEMORY",
        ge=1,
        le=86_400,
    )
    class_confirm: int = tuning(
        "STREAMS_CLASS_CONFIRM",
        "decisions in a row before classes merge or part",
        3,
        was="CLASS_CONFIRM",
        ge=1,
        le=100,
    )
    class_min_samples: int = tuning(
        "STREAMS_CLASS_MIN_SAMPLES",
        "good calls of a class before it is judged",
        300,
        was="CLASS_MIN_SAMPLES",
        ge=50,
    )
    class_lease_s: float = tuning(
        "STREAMS_CLASS_LEASE_S",
        "how long rare classes stay in `/other`",
        3600.0,
        was="CLASS_LEASE",
        ge=1,
        le=86_400,
    )


BOX = Box(
    "STREAMS",
    {
        "admit": AdmitSettings,
        "exclusive": ExclusiveSettings,
        "classify": ClassifySettings,
        "curves": CurvesSettings,
        "graph": GraphSettings,
        "topics": TopicsSettings,
    },
)
