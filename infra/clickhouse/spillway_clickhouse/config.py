"""Configuration from environment variables, read once."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from spillway_contracts.wires import ClickHouseWire
from spillway_runtime.box import Box
from spillway_runtime.settings import HostPort, Settings, tuning

from spillway_clickhouse import grants
from spillway_clickhouse.grants import Role
from spillway_clickhouse.variants import CLUSTERED, VariantName


class ServerConfig(Settings):
    """Configuration of `spillway_clickhouse.server`. Sizes are in bytes."""

    clickhouse_user: str = Field(min_length=1)
    clickhouse_password: SecretStr
    clickhouse_listen: HostPort
    health_listen: HostPort
    state_dir: Path
    max_threads: int = tuning("CLICKHOUSE_MAX_THREADS", "threads per query", 2, ge=1, le=256)
    max_memory_bytes: int = tuning(
        "CLICKHOUSE_MAX_MEMORY_BYTES",
        "memory of the engine",
        4 << 30,
        was="CLICKHOUSE_MAX_MEMORY",
        ge=256 << 20,
    )
    max_connections: int = tuning("CLICKHOUSE_MAX_CONNECTIONS", "connections at a time", 128, ge=1, le=4096)
    clickhouse_grants: Path | None = None
    clickhouse_users: Path | None = None

    @field_validator("clickhouse_grants")
    @classmethod
    def _grants(cls, value: Path | None) -> Path | None:
        if value is not None:
            _roles(value)
        return value

    @field_validator("clickhouse_users")
    @classmethod
    def _users(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        roles = info.data.get("clickhouse_grants")
        if value is not None:
            if roles is None:
                raise ValueError("set without SPILLWAY_CLICKHOUSE_GRANTS")
            if unknown := set(_accounts(value)) - set(_roles(roles)):
                raise ValueError(f"{value}: {min(unknown)}: must be a role of {roles}")
        return value

    @property
    def roles(self) -> dict[str, Role]:
        return _roles(self.clickhouse_grants) if self.clickhouse_grants else {}

    @property
    def accounts(self) -> dict[str, str]:
        """Passwords by user. A user has the role with the same name."""
        return _accounts(self.clickhouse_users) if self.clickhouse_users else {}


def _roles(path: Path) -> dict[str, Role]:
    try:
        return grants.read(path)
    except grants.GrantsError as error:
        raise ValueError(str(error)) from None


def _accounts(path: Path) -> dict[str, str]:
    """Returns passwords by user.

    A ValueError never quotes the file, because it contains passwords.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {type(error).__name__}") from None
    sound = isinstance(found, dict) and all(
        isinstance(text, str) and text for pair in found.items() for text in pair
    )
    if not sound:
        raise ValueError(f"{path}: must map users to passwords, texts that are not empty")
    return found


class UsersConfig(ClickHouseWire, Settings):
    """Configuration of `spillway_clickhouse.users`: the URL of a user who may create users."""

    clickhouse_url: str


class MigrateConfig(ClickHouseWire, Settings):
    """Configuration of `spillway_clickhouse.migrate`. The wait is in seconds."""

    clickhouse_url: str
    wait_s: float = tuning(
        "CLICKHOUSE_WAIT_S", "time to wait for the server", 60, was="CLICKHOUSE_WAIT", ge=0
    )
    clickhouse_variant: VariantName = "single"
    # Quoted in DDL. Braces are allowed for a macro such as {cluster}.
    clickhouse_cluster: str = Field("", pattern=r"^[A-Za-z0-9_.{}-]*$")

    @model_validator(mode="after")
    def _cluster_of_a_variant(self) -> MigrateConfig:
        if bool(self.clickhouse_cluster) != (self.clickhouse_variant in CLUSTERED):
            raise ValueError(
                "SPILLWAY_CLICKHOUSE_CLUSTER: must be set with variant replicated or distributed, and only with these"
            )
        return self


BOX = Box("CLICKHOUSE", {"server": ServerConfig, "migrate": MigrateConfig})
