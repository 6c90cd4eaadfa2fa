"""Settings from environment variables (prefix SPILLWAY_), read once at start.

REFERENCE.md contains the table.
"""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import redis.connection
from clickhouse_driver import Client
from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict
from spillway_contracts.wires import ClickHouseWire, NatsWire, RedisWire
from spillway_runtime.settings import HostPort, Settings

from spillway_optimizer.policies import REGISTRY


def _policy(value: str) -> str:
    if value not in REGISTRY:
        raise ValueError(f"must be one of {', '.join(sorted(REGISTRY))}")
    return value


def redis_url(value: str) -> str:
    """Validates a Redis URL. Raises ValueError with the expected form.

    The error does not repeat the wrong value, because it may contain the password.
    """
    form = "must be redis://user:password@host:port/number, rediss:// or unix://"
    try:
        redis.connection.parse_url(value)
    except ValueError:
        raise ValueError(form) from None
    return value


def clickhouse_url(value: str) -> str:
    """Validates a ClickHouse URL. Raises ValueError as redis_url does."""
    form = "must be clickhouse://user:password@host:port/database, or clickhouses://"
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("clickhouse", "clickhouses") and parts.hostname and parts.port != 0
        if sound:
            Client.from_url(value)
    except (ValueError, TypeError):
        sound = False
    if not sound:
        raise ValueError(form)
    return value


class Redis(RedisWire, Settings):
    """Settings of the command `policy`."""

    redis_url: Annotated[str, AfterValidator(redis_url)]


ClickHouseUrl = Annotated[str, AfterValidator(clickhouse_url)]


class Servers(Redis, ClickHouseWire, NatsWire):
    """Settings of every long-running role."""

    model_config = SettingsConfigDict(validate_default=True)  # as NatsWire's
    topology: Path
    clickhouse_url: ClickHouseUrl
    nats_url: str
    health_listen: HostPort


class Optimizer(Servers):
    """Settings of the command `run`. Times are in seconds."""

    policy: Annotated[str, AfterValidator(_policy)]
    guardrails: Path | None = None
    optimizer_period_s: float = Field(5.0, gt=0)
    optimizer_load_change: float = Field(0.2, gt=0, le=1)
    optimizer_min_interval_s: float = Field(1.0, ge=0)
    optimizer_renew_s: float = Field(15.0, gt=0)
    optimizer_ttl_s: float = Field(120.0, gt=0)
    optimizer_lease_s: float = Field(10.0, ge=1)
    optimizer_demand_half_life_s: float = Field(5.0, ge=0)
    optimizer_board_max_age_s: float = Field(15.0, gt=0)
    optimizer_min_weight_change: int = Field(200, ge=0, le=10_000)
    optimizer_failure_cost_ms: float = Field(600.0, ge=0)
    optimizer_rollback_interval_s: float = Field(600.0, ge=0)
    optimizer_min_gain: float = Field(0.001, ge=0, lt=1)
    optimizer_relative_gap: float = Field(1e-4, gt=0, lt=1)
    optimizer_solve_s: float = Field(3.0, gt=0)


class Papa(Servers):
    """Settings of the command `papa`. Symbols as in SLATE 4.4.2."""

    papa_gamma: float = Field(0.05, gt=0, le=1)
    papa_tau_s: float = Field(10.0, gt=0)
    papa_theta: int = Field(3, ge=1)
    papa_delta_perf: float = Field(0.10, gt=0)
    papa_settle_s: float = Field(5.0, ge=0)
    papa_window_s: float = Field(6.0, gt=0)
    papa_windows: int = Field(8, ge=3)
    papa_alpha: float = Field(0.05, gt=0, lt=1)
    papa_min_gap_ms: float = Field(1.0, ge=0)
    papa_sigma: float = Field(2.0, ge=0)
    papa_lease_s: float = Field(10.0, ge=1)
    papa_ttl_s: float = Field(120.0, gt=0)
    papa_board_max_age_s: float = Field(15.0, gt=0)
