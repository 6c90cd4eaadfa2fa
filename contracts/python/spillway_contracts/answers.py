"""Checks that each server named in the environment answers with the credentials given there.

    python -m spillway_contracts.answers --topics otlp_spans,spillway_calls --tables calls,edges

`helm test` runs it in every box. It prints a line per server. The exit code is 1 when a server does
not answer or lacks a topic or table, and 64 when the environment is wrong. It reads and writes no
data. Clients are imported only when needed, because a box has only those of its own servers.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict
from spillway_runtime import command_line, exit_codes
from spillway_runtime.settings import Settings, problems

from spillway_contracts import wires

WAIT_S = 20.0
_CONFIG = SettingsConfigDict(validate_default=True)
S = TypeVar("S", bound=Settings)


class MissingError(Exception):
    """The server answers, but lacks what is required."""


class _Kafka(wires.KafkaWire, Settings):
    model_config = _CONFIG


class _ClickHouse(wires.ClickHouseWire, Settings):
    model_config = _CONFIG
    clickhouse_url: str


class _Redis(wires.RedisWire, Settings):
    model_config = _CONFIG
    redis_url: str


class _Nats(wires.NatsWire, Settings):
    model_config = _CONFIG
    nats_url: str


def _read(kind: type[S]) -> S:
    """Reads the settings from the environment. Raises ValidationError."""
    return kind()


def _one_line(error: Exception) -> str:
    """Returns the error on one line, without the stack trace that ClickHouse appends."""
    return " ".join(str(error).partition("Stack trace:")[0].split())[:300] or "no answer"


async def kafka(topics: list[str]) -> str:
    """Checks that each topic exists and that this user may see it. Raises MissingError."""
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import for_code

    wire = _read(_Kafka)
    admin = AIOKafkaAdminClient(bootstrap_servers=wire.kafka.split(","), **wire.kafka_client())
    try:
        await admin.start()
        found = await admin.describe_topics(topics) if topics else []
    finally:
        await admin.close()
    wrong = [
        f"{topic['topic']}: {for_code(topic['error_code']).__name__}"
        for topic in found
        if topic["error_code"]
    ]
    if wrong:
        raise MissingError(", ".join(wrong))
    return f"{len(topics)} topics"


async def clickhouse(tables: list[str]) -> str:
    """Checks that each table exists and that this user may read it. Raises MissingError."""
    from clickhouse_driver import Client
    from clickhouse_driver.errors import ServerException

    wrong = []
    with Client.from_url(_read(_ClickHouse).clickhouse_address) as client:
        client.execute("SELECT 1")
        for table in tables:
            try:
                client.execute(f"SELECT 1 FROM {table} LIMIT 0")
            except ServerException as error:
                wrong.append(f"{table}: {_one_line(error)}")
    if wrong:
        raise MissingError(", ".join(wrong))
    return f"{len(tables)} tables"


async def redis(_: list[str]) -> str:
    """Checks that Redis answers a PING."""
    from spillway_contracts import redis_client

    wire = _read(_Redis)
    async with redis_client.connect(wire.redis_url, **wire.redis_options()) as client:
        await client.ping()
    return "pong"


async def nats(_: list[str]) -> str:
    """Checks that NATS answers."""
    from spillway_contracts import nats_client

    wire = _read(_Nats)
    client = await nats_client.connect(wire.nats_url, tls=wire.nats_tls(), allow_reconnect=False)
    try:
        await client.flush()
    finally:
        await client.close()
    return "connected"


# Environment variable that names the server -> its check.
CHECKS: dict[str, Callable[[list[str]], Awaitable[str]]] = {
    "SPILLWAY_KAFKA": kafka,
    "SPILLWAY_CLICKHOUSE_URL": clickhouse,
    "SPILLWAY_REDIS_URL": redis,
    "SPILLWAY_NATS_URL": nats,
}


async def ask(wanted: dict[str, list[str]]) -> dict[str, str]:
    """Returns what is wrong, by server; empty when every server answers.

    `wanted`: required topics or tables by server.
    """
    wrong = {}
    for variable, check in CHECKS.items():
        if variable not in os.environ:
            continue
        name = check.__name__
        try:
            print(f"{name}: {await asyncio.wait_for(check(wanted.get(name, [])), WAIT_S)}")
        except ValidationError:
            raise
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {_one_line(error)}"
            print(f"{name}: {wrong[name]}", file=sys.stderr)
    return wrong


@click.command(cls=command_line.Command)
@click.option("--topics", default="", help="Kafka topics, separated by commas, that must be there.")
@click.option("--tables", default="", help="ClickHouse tables, likewise.")
def main(topics: str, tables: str) -> int:
    """Checks that each server named in the environment answers."""
    if not any(variable in os.environ for variable in CHECKS):
        raise click.UsageError(f"no server: set one of {', '.join(CHECKS)}")
    wanted = {"kafka": topics.split(","), "clickhouse": tables.split(",")}
    try:
        wrong = asyncio.run(ask({server: [n for n in names if n] for server, names in wanted.items()}))
    except ValidationError as error:
        print("\n".join(problems(error)), file=sys.stderr)
        return exit_codes.USAGE
    return exit_codes.FAILED if wrong else 0


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_contracts.answers"))
