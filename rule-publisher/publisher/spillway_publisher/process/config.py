"""Configuration, read once at start from environment variables (prefix SPILLWAY_)."""

from pathlib import Path

from pydantic import SecretStr
from spillway_contracts.wires import ClickHouseWire, NatsWire, RedisWire
from spillway_runtime.box import Box
from spillway_runtime.settings import HostPort, Settings, tuning


class TopologySettings(Settings):
    """Settings of the command `validate`."""

    topology: Path
    guardrails: Path | None = None


class OperatorSettings(NatsWire, ClickHouseWire, Settings):
    """Settings of the commands that connect, such as `status`, `rollback` and `act`.

    `status` reads acknowledgements from ClickHouse when its URL is set.
    """

    nats_url: SecretStr
    ruleset_keys: Path  # public keys whose signatures are trusted
    clickhouse_url: SecretStr | None = None


class RunSettings(NatsWire, RedisWire, ClickHouseWire, TopologySettings):
    """Settings of the command `run`. The URLs contain secrets, so they are never logged."""

    nats_url: SecretStr
    redis_url: SecretStr
    clickhouse_url: SecretStr
    signing_key: Path
    ruleset_keys: Path | None = None  # public keys that are trusted besides the signing key's own
    health_listen: HostPort
    refresh_s: float = tuning(
        "PUBLISHER_REFRESH_S", "time between two writes to Redis", 2, was="REFRESH_SECONDS", gt=0, le=60
    )
    ack_wait_s: float = tuning(
        "PUBLISHER_ACK_WAIT_S",
        "time after which NATS delivers a dead publisher's proposal again",
        5,
        was="ACK_WAIT_SECONDS",
        gt=0.1,
    )
    history_rows: int = tuning(
        "PUBLISHER_HISTORY_ROWS", "most rows that wait for ClickHouse", 100_000, was="HISTORY_ROWS", ge=1
    )
    nats_replicas: int = tuning(
        "PUBLISHER_NATS_REPLICAS",
        "servers of a NATS cluster that hold each stream and the bucket",
        1,
        was="NATS_REPLICAS",
        ge=1,
        le=5,
    )
    reports_bytes: int = tuning(
        "PUBLISHER_REPORTS_BYTES",
        "largest size of the stream of reports",
        256 * 1024 * 1024,
        was="REPORTS_BYTES",
        ge=1024 * 1024,
    )
    checkpoints_bytes: int = tuning(
        "PUBLISHER_CHECKPOINTS_BYTES",
        "largest size of the stream of checkpoints; beyond it the oldest are dropped early",
        256 * 1024 * 1024,
        was="CHECKPOINTS_BYTES",
        ge=1024 * 1024,
    )


BOX = Box("PUBLISHER", {"run": RunSettings})
