"""Configuration, read once at start from environment variables (prefix SPILLWAY_)."""

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from spillway_contracts.wires import ClickHouseWire, NatsWire, RedisWire

EXIT_CONFIGURATION = 64
S = TypeVar("S", bound=BaseSettings)


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="SPILLWAY_", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )


class TopologySettings(_Settings):
    """Settings of the command `validate`."""

    topology: Path
    guardrails: Path | None = None


class OperatorSettings(NatsWire, ClickHouseWire, _Settings):
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
    health_listen: str
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

    @field_validator("health_listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{value!r} must be host:port")
        return value


def read(kind: type[S]) -> S:
    """Returns the settings.

    If any are wrong, prints one line per variable and exits with code 64.
    """
    try:
        return kind()
    except ValidationError as error:
        for problem in error.errors():
            name = "SPILLWAY_" + str(problem["loc"][0]).upper()
            why = (
                "is not set" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
            )
            print(f"{name}: {why}", file=sys.stderr)
        raise SystemExit(EXIT_CONFIGURATION) from None
