"""Configuration, read once at start from environment variables (prefix SPILLWAY_)."""

from pathlib import Path

from pydantic import Field, SecretStr
from spillway_contracts.wires import ClickHouseWire, NatsWire, RedisWire
from spillway_runtime.settings import HostPort, Settings


class TopologySettings(Settings):
    """Settings of the command `validate`."""

    topology: Path
    guardrails: Path | None = None


class OperatorSettings(NatsWire, ClickHouseWire, Settings):
    """Settings of the commands `status`, `history`, `rollback` and `reset-fence`.

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
    refresh_seconds: float = Field(default=2, gt=0, le=60)  # period of rewriting the in_force keys
    # Seconds after which NATS redelivers a dead publisher's proposal
    ack_wait_seconds: float = Field(default=5, gt=0.1)
    # Maximum number of rows waiting for ClickHouse
    history_rows: int = Field(default=100_000, ge=1)
    # NATS servers that hold each stream and the bucket
    nats_replicas: int = Field(default=1, ge=1, le=5)
    # Maximum size of SPILLWAY_REPORTS
    reports_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    # Maximum size of SPILLWAY_CHECKPOINTS
    checkpoints_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
