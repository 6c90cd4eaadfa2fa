"""The wiring of `status` and `rollback`: one connection, a question or a proposal, an answer."""

import asyncio
import contextlib
import json
import sys
import time

from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names

from spillway_publisher import jetstream, operator, rows
from spillway_publisher.bucket import read_history, read_keys, read_latest
from spillway_publisher.clickhouse import TROUBLE as CLICKHOUSE_TROUBLE
from spillway_publisher.clickhouse import ClickHouse
from spillway_publisher.config import OperatorSettings
from spillway_publisher.telemetry import Telemetry

WAIT_S = 15.0


@contextlib.asynccontextmanager
async def _jetstream(settings: OperatorSettings):
    try:
        client = await jetstream.connect(settings, Telemetry())
    except jetstream.TROUBLE as error:
        raise operator.OperatorError(
            f"SPILLWAY_NATS_URL: cannot connect: {Telemetry.describe(error)}"
        ) from error
    try:
        yield client.jetstream(timeout=5)
    except jetstream.TROUBLE as error:
        raise operator.OperatorError(
            f"NATS: {Telemetry.describe(error)}; has a publisher ever run against this server?"
        ) from error
    finally:
        await client.close()


async def _history(js) -> dict[str, list[Ruleset]]:
    keys = await read_keys(js)
    found = {key: await read_history(js, key, Telemetry()) for key in keys}
    return {key: [stored.ruleset for stored in values] for key, values in found.items() if values}


async def status(settings: OperatorSettings, as_json: bool) -> int:
    """Prints what is in force in every cluster."""
    async with _jetstream(settings) as js:
        found = {key: await read_latest(js, key) for key in await read_keys(js)}
        in_force = {cluster: ruleset for cluster, ruleset in found.items() if ruleset is not None}
    acknowledged = await _acknowledged(settings, {r.version for r in in_force.values()})
    table = operator.status_rows(in_force, acknowledged, time.time_ns())
    print(json.dumps(table) if as_json else operator.format_table(table))
    return 0


async def _acknowledged(
    settings: OperatorSettings, versions: set[int]
) -> dict[tuple[str, int], tuple[int, int]] | None:
    if settings.clickhouse_url is None or not versions:
        return None
    clickhouse = ClickHouse(settings.clickhouse_address)
    try:
        found = await clickhouse.select(rows.sql("acknowledged"), {"versions": tuple(sorted(versions))})
    except CLICKHOUSE_TROUBLE as error:
        print(f"ClickHouse is away, acks are unknown: {Telemetry.describe(error)}", file=sys.stderr)
        return None
    finally:
        clickhouse.close()
    return {(cluster, version): (acks, nacks) for cluster, version, acks, nacks in found}


async def rollback(settings: OperatorSettings, to: int | None, reason: str, lifetime_s: float) -> int:
    """Proposes an earlier version's rules and waits until the publisher has published them."""
    async with _jetstream(settings) as js:
        history = await _history(js)
        version = operator.choose_version(history, to)
        proposal = operator.rollback(operator.whole(history, version), reason, lifetime_s, time.time_ns())
        subject = names.NATS_SUBJECT_PROPOSALS.format(origin="operator")
        await js.publish(subject, proposal.SerializeToString(), headers={"Nats-Msg-Id": proposal.id})
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            published = [await read_latest(js, cluster) for cluster in history]
            if all(ruleset is not None and ruleset.id == proposal.id for ruleset in published):
                print(f"version {published[0].version} is in force: the rules of version {version}")
                return 0
            await asyncio.sleep(0.2)
    raise operator.OperatorError(
        f"proposal {proposal.id} was sent but is not in force everywhere after {WAIT_S:g} s: does the "
        f"publisher run? If it refused, table rulesets and its log say why"
    )
