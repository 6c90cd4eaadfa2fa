"""The running mesh as a source, configured by environment variables.

Boards and rules in force come from Redis, the model's rows from ClickHouse.
"""

import asyncio
import dataclasses
import time
from urllib.parse import urlsplit

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.wires import ClickHouseWire
from spillway_runtime.settings import load

from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History
from spillway_optimizer.inputs.in_force import InForce, held_as
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.service.reading import CLICKHOUSE_AWAY, REDIS_AWAY
from spillway_optimizer.solving import config
from spillway_optimizer.sources.errors import UnavailableError
from spillway_optimizer.sources.source_data import SourceData


class Live(config.Redis, ClickHouseWire):
    """Settings of the servers: SPILLWAY_REDIS_URL and SPILLWAY_CLICKHOUSE_URL."""

    clickhouse_url: config.ClickHouseUrl


def read(topology: Topology) -> SourceData:
    """Reads the running mesh.

    Raises UnavailableError with the variable of the server that does not answer.
    """
    settings = load(Live)
    clusters = tuple(cluster.name for cluster in topology.clusters)
    try:
        boards, in_force = asyncio.run(_hot(settings, clusters))
    except REDIS_AWAY as error:
        raise UnavailableError(_away("SPILLWAY_REDIS_URL", settings.redis_url, error)) from None
    try:
        history = History(settings.clickhouse_address)
        rows = history.model()
        history.close()
    except CLICKHOUSE_AWAY as error:
        raise UnavailableError(_away("SPILLWAY_CLICKHOUSE_URL", settings.clickhouse_url, error)) from None
    telemetry = dataclasses.replace(
        boards,
        curves=rows.curves,
        capacities=rows.capacities,
        call_ratios=rows.call_ratios,
        network_rows=rows.network,
        malformed=boards.malformed + rows.malformed,
    )
    now = time.time()
    notes: tuple[str, ...] = ()
    in_force_from = f"version {in_force.version}, policy {in_force.policy}" if in_force else ""
    rules = in_force.routing(now) if in_force else None
    if in_force and not rules:
        rules, notes = None, (f"rules: version {in_force.version} is the newest, and has expired",)
    return SourceData("the running mesh", telemetry, topology, now, rules, in_force_from, notes)


async def _hot(settings: Live, clusters: tuple[str, ...]) -> tuple[Telemetry, InForce | None]:
    redis = hot.connect(settings.redis_url, settings.redis_options())
    try:
        boards = await hot.boards(redis, clusters)
        return boards, held_as(await hot.in_force(redis, clusters), boards)
    finally:
        await redis.aclose()


def _away(variable: str, url: str, error: BaseException) -> str:
    """Describes a server that does not answer, without user and password."""
    parts = urlsplit(url)
    return f"{variable}: {parts.hostname}:{parts.port}: {type(error).__name__}"
