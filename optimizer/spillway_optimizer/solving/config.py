"""Settings from environment variables (prefix SPILLWAY_), read once at start.

REFERENCE.md contains the table.
"""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import redis.connection
from clickhouse_driver import Client
from pydantic import AfterValidator
from pydantic_settings import SettingsConfigDict
from spillway_contracts.wires import ClickHouseWire, NatsWire, RedisWire
from spillway_runtime.box import Box
from spillway_runtime.settings import HostPort, Settings, tuning

from spillway_optimizer.policies import MODEL_FREE, REGISTRY


def _policy(value: str) -> str:
    if value not in REGISTRY:
        raise ValueError(f"must be one of {', '.join(sorted(REGISTRY))}")
    return value


def _fallback(value: str) -> str:
    if value and value not in MODEL_FREE:
        raise ValueError(f"must be empty, or one of {', '.join(sorted(MODEL_FREE))}")
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


class OptimizerTuning(Settings):
    """What tunes the optimizer. Times are in seconds."""

    period_s: float = tuning("OPTIMIZER_PERIOD_S", "time between two solves", 5.0, gt=0)
    load_change: float = tuning(
        "OPTIMIZER_LOAD_CHANGE", "relative; a larger change is solved at once", 0.2, gt=0, le=1
    )
    min_interval_s: float = tuning(
        "OPTIMIZER_MIN_INTERVAL_S",
        "least time between an urgent solve and the next; after a long solve, the time that it took",
        1.0,
        ge=0,
    )
    renew_s: float = tuning(
        "OPTIMIZER_RENEW_S", "time after which unchanged rules are proposed again", 15.0, gt=0
    )
    ttl_s: float = tuning("OPTIMIZER_TTL_S", "expiry of a ruleset", 120.0, gt=0)
    lease_s: float = tuning("OPTIMIZER_LEASE_S", "expiry of the leader's lease", 10.0, ge=1)
    demand_half_life_s: float = tuning(
        "OPTIMIZER_DEMAND_HALF_LIFE_S", "half-life of the smoothing of demand; 0: no smoothing", 5.0, ge=0
    )
    board_max_age_s: float = tuning(
        "OPTIMIZER_BOARD_MAX_AGE_S",
        "age after which a board is unknown; its last values are held",
        15.0,
        gt=0,
    )
    min_weight_change: int = tuning(
        "OPTIMIZER_MIN_WEIGHT_CHANGE",
        "least change of a weight that is proposed, of 10 000",
        200,
        ge=0,
        le=10_000,
    )
    failure_cost_ms: float = tuning(
        "OPTIMIZER_FAILURE_COST_MS",
        "cost of a call at a success rate of one half; 0: failures cost nothing",
        600.0,
        ge=0,
    )
    fallback: Annotated[str, AfterValidator(_fallback)] = tuning(
        "OPTIMIZER_FALLBACK",
        "policy of an application whose curves or capacities are missing or uncertain; empty: none",
        "",
    )
    fallback_error: float = tuning(
        "OPTIMIZER_FALLBACK_ERROR",
        "a predicted time is uncertain if its standard error is more than this, relative to it",
        0.5,
        gt=0,
    )
    fallback_solves: int = tuning(
        "OPTIMIZER_FALLBACK_SOLVES",
        "solves in a row that have them again before an application returns",
        3,
        ge=1,
    )
    pod_wait_s: float = tuning(
        "OPTIMIZER_POD_WAIT_S",
        "time for which calls beyond an autoscaler's target wait for a pod; then they go elsewhere",
        600.0,
        gt=0,
    )
    rollback_interval_s: float = tuning(
        "OPTIMIZER_ROLLBACK_INTERVAL_S",
        "least time between two rollbacks of an application, and before a failed change is tried again",
        600.0,
        ge=0,
    )
    min_gain: float = tuning(
        "OPTIMIZER_MIN_GAIN", "least gain of the objective that is proposed, relative", 0.001, ge=0, lt=1
    )
    relative_gap: float = tuning("OPTIMIZER_RELATIVE_GAP", "gap at which refining stops", 1e-4, gt=0, lt=1)
    solve_s: float = tuning("OPTIMIZER_SOLVE_S", "time after which refining stops", 3.0, gt=0)
    processes: int = tuning(
        "OPTIMIZER_PROCESSES",
        "workers that solve applications at the same time; 0: one per core, at most 4; 1: no workers",
        0,
        ge=0,
    )
    audit_s: float = tuning("OPTIMIZER_AUDIT_S", "time between two audits; 0: no audits", 60.0, ge=0)
    audit_limit_s: float = tuning(
        "OPTIMIZER_AUDIT_LIMIT_S",
        "time after which the proof of an audit stops; its process is killed after five times that",
        10.0,
        gt=0,
    )


class Optimizer(OptimizerTuning, Servers):
    """Settings of the command `run`."""

    policy: Annotated[str, AfterValidator(_policy)]
    guardrails: Path | None = None


class PapaTuning(Settings):
    """What tunes PAPA. Times are in seconds. Symbols as in SLATE 4.4.2."""

    gamma: float = tuning("PAPA_GAMMA", "γ of SLATE 4.4.2: size of a step", 0.05, gt=0, le=1)
    gamma_limit: float = tuning(
        "PAPA_GAMMA_LIMIT", "most that a step moves; each step that is kept doubles the next", 0.2, gt=0, le=1
    )
    direction: Literal["gap", "cost"] = tuning(
        "PAPA_DIRECTION", "what a step follows: gaps as in SLATE 4.4.2, or costs of one more request", "cost"
    )
    scope: Literal["application", "mesh"] = tuning(
        "PAPA_SCOPE",
        "what makes one step at a time: each application, whose requests share no service with others, or the mesh",
        "application",
    )
    tau_s: float = tuning("PAPA_TAU_S", "τ: settling time after others change rules", 10.0, gt=0)
    theta: int = tuning("PAPA_THETA", "θ of SLATE 4.4.2", 3, ge=1)
    delta_perf: float = tuning("PAPA_DELTA_PERF", "δ_perf of SLATE 4.4.2", 0.10, gt=0)
    settle_s: float = tuning("PAPA_SETTLE_S", "time between a step in force and its measurement", 5.0, ge=0)
    window_s: float = tuning("PAPA_WINDOW_S", "length of a window", 6.0, gt=0)
    windows: int = tuning("PAPA_WINDOWS", "windows before a step; at most twice as many follow it", 8, ge=3)
    alpha: float = tuning(
        "PAPA_ALPHA", "upper bound of the probability that a step without effect is kept", 0.05, gt=0, lt=1
    )
    min_gap_ms: float = tuning("PAPA_MIN_GAP_MS", "least spread of the noise", 1.0, ge=0)
    sigma: float = tuning("PAPA_SIGMA", "least spread of the noise in standard errors", 2.0, ge=0)
    lease_s: float = tuning("PAPA_LEASE_S", "expiry of the lease of the running worker", 10.0, ge=1)
    ttl_s: float = tuning("PAPA_TTL_S", "expiry of a ruleset", 120.0, gt=0)
    board_max_age_s: float = tuning("PAPA_BOARD_MAX_AGE_S", "age after which a board is unknown", 15.0, gt=0)


class Papa(PapaTuning, Servers):
    """Settings of the command `papa`."""

    guardrails: Path | None = None


BOX = Box("OPTIMIZER", {"run": Optimizer, "papa": Papa})
