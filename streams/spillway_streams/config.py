"""Settings, read once at start from environment variables with the prefix SPILLWAY_."""

import sys
from pathlib import Path

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

EXIT_USAGE = 64


class Settings(BaseSettings):
    """What every job needs. Addresses and identities have no default."""

    model_config = SettingsConfigDict(env_prefix="SPILLWAY_", extra="ignore", frozen=True)

    kafka: str = Field(description="host:port[,host:port...]")
    clickhouse_url: str = Field(description="clickhouse://user:pass@host:port/database")
    state_dir: Path
    health_listen: str = Field(description="host:port")
    topic_partitions: int = Field(4, ge=1, le=1024)
    topic_replicas: int = Field(1, ge=1, le=10)

    @field_validator("kafka", "health_listen")
    @classmethod
    def _host_port(cls, value: str) -> str:
        for part in value.split(","):
            host, _, port = part.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{value!r}: must be host:port with a port in 1..65535")
        return value

    @field_validator("clickhouse_url")
    @classmethod
    def _clickhouse(cls, value: str) -> str:
        if not value.startswith(("clickhouse://", "clickhouses://")):
            raise ValueError("must start with clickhouse:// or clickhouses://")
        return value

    @property
    def brokers(self) -> list[str]:
        return self.kafka.split(",")

    @property
    def health_address(self) -> tuple[str, int]:
        host, _, port = self.health_listen.rpartition(":")
        return host, int(port)


class _HotSettings(Settings):
    """Jobs that also write boards. Seconds, of event time unless said otherwise."""

    redis_url: str = Field(description="redis://:pass@host:port/0")
    board_period: float = Field(1.0, gt=0, le=60, description="wall seconds between boards")
    board_window: int = Field(5, ge=1, le=300, description="a board covers this many whole seconds")
    board_expiry: float = Field(15.0, gt=0, le=3600, description="wall seconds until a board is forgotten")
    lateness: float = Field(
        2.0, ge=0, le=60, description="seconds behind the newest call that are still filling"
    )

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        if not value.startswith(("redis://", "rediss://")):
            raise ValueError("must start with redis:// or rediss://")
        return value


class ExclusiveSettings(Settings):
    """The job `exclusive`."""

    window: float = Field(2.0, gt=0, le=60, description="silent seconds after which a trace closes")
    hold: float = Field(
        10.0, gt=0, le=600, description="seconds that a client span waits for its server span"
    )
    flush_period: float = Field(0.5, gt=0, le=10)
    max_spans: int = Field(500_000, ge=1000, description="spans held per partition")
    max_trace_spans: int = Field(20_000, ge=10)
    max_unflushed_spans: int = Field(
        200_000, ge=1000, description="closed spans not yet stored; then consumption pauses"
    )
    classes_per_service: int = Field(200, ge=1, le=10_000)


class CurvesSettings(_HotSettings):
    """The job `curves`."""

    fit_period: float = Field(5.0, gt=0, le=600, description="wall seconds between fits")
    memory_seconds: int = Field(3600, ge=60, le=86_400, description="seconds with data that are remembered")
    capacity_seconds: int = Field(
        600, ge=10, le=86_400, description="seconds with data that capacity is taken from"
    )
    min_samples: int = Field(30, ge=2, description="samples that make a utilisation bucket count")
    shift_window: int = Field(60, ge=5, description="seconds of data that a shift is taken from")


class GraphSettings(_HotSettings):
    """The job `graph`."""

    graph_window: int = Field(
        30, ge=1, le=3600, description="call ratios and network times cover these seconds"
    )
    graph_period: float = Field(5.0, gt=0, le=600, description="wall seconds between rows")
    max_network_samples: int = Field(200_000, ge=100)


def load(kind: type[Settings]) -> Settings:
    """Settings of one job; exits with status 64 after a line for every variable that is wrong."""
    try:
        return kind()
    except ValidationError as error:
        for problem in error.errors():
            name = "SPILLWAY_" + "_".join(str(part) for part in problem["loc"]).upper()
            print(f"{name}: {problem['msg']}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
