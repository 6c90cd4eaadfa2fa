"""Applies numbered SQL files in order: `python -m spillway_clickhouse.migrate --ddl <folder>`.

Works on any ClickHouse server by SPILLWAY_CLICKHOUSE_URL; each applied file is recorded with its
SHA-256 in `schema_migrations` of the database that the URL names. Running it again changes nothing.
For replicas and shards the same files are written anew by `variants`.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import click
from clickhouse_driver import Client
from clickhouse_driver.errors import Error, NetworkError, ServerException, SocketTimeoutError
from spillway_runtime import command_line, exit_codes

from spillway_clickhouse.config import BOX, MigrateConfig
from spillway_clickhouse.sql import tokens
from spillway_clickhouse.variants import VARIANTS, Target, VariantError, VariantName, statements

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    file       String,
    sha256     FixedString(64),
    variant    LowCardinality(String),
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(applied_at)
ORDER BY file
COMMENT 'whole on every node'
"""


class MigrationError(Exception):
    """A folder, a file or a server prevents the migration. The message names it."""


@dataclass(frozen=True)
class Migration:
    """One SQL file: its name, its statements in order, and the SHA-256 (hex) of its bytes."""

    file: str
    statements: tuple[str, ...]
    sha256: str


def read_folder(folder: Path) -> list[Migration]:
    """Returns the folder's NNNN_*.sql files by number.

    Raises MigrationError for other names, a number used twice, or an empty file.
    """
    if not folder.is_dir():
        raise MigrationError(f"{folder}: not a folder")
    found: dict[str, Migration] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if not match:
            raise MigrationError(f"{path.name}: name must be NNNN_lower_case.sql")
        if match[1] in found:
            raise MigrationError(f"{path.name}: number {match[1]} is taken by {found[match[1]].file}")
        content = path.read_bytes()
        statements = split_statements(content.decode())
        if not statements:
            raise MigrationError(f"{path.name}: has no statement")
        found[match[1]] = Migration(path.name, statements, hashlib.sha256(content).hexdigest())
    if not found:
        raise MigrationError(f"{folder}: has no NNNN_*.sql file")
    return list(found.values())


def split_statements(text: str) -> tuple[str, ...]:
    """Splits the text at semicolons outside quotes and comments."""
    statements, begin, end = [], None, 0
    # Without this last word, `tokens` would drop the last semicolon
    for token in tokens(text + "\n;END"):
        if token.upper == ";":
            if begin is not None:
                statements.append(text[begin:end])
            begin = None
        else:
            begin = token.start if begin is None else begin
            end = token.end
    return tuple(statements)


def pending(migrations: list[Migration], applied: dict[str, str]) -> list[Migration]:
    """Returns the files not applied yet.

    Raises MigrationError when an applied file has changed or is missing.
    """
    here = {migration.file: migration for migration in migrations}
    for file, sha256 in sorted(applied.items()):
        if file not in here:
            raise MigrationError(f"{file}: was applied but is not in the folder")
        if here[file].sha256 != sha256:
            raise MigrationError(
                f"{file}: changed after it was applied (SHA-256 {here[file].sha256[:12]}…, applied "
                f"{sha256[:12]}…); put the change into a new file"
            )
    return [migration for migration in migrations if migration.file not in applied]


def database_of(url: str) -> tuple[str, str]:
    """Returns (the URL without its database, the database).

    Raises MigrationError when the URL names none.
    """
    parts = urlsplit(url)
    database = unquote(parts.path.lstrip("/"))
    if not database:
        raise MigrationError("SPILLWAY_CLICKHOUSE_URL: names no database; end it with /<database>")
    return urlunsplit(parts._replace(path="")), database


def wait(url: str, seconds: float) -> None:
    """Returns once the server answers. `seconds`: how long to wait.

    Raises MigrationError after that time.
    """
    where = urlsplit(url).netloc.rpartition("@")[2]
    begin = time.monotonic()
    while True:
        client = Client.from_url(url)
        try:
            client.execute("SELECT 1")
            return
        except (NetworkError, SocketTimeoutError, EOFError, OSError) as error:
            waited = time.monotonic() - begin
            if waited >= seconds:
                raise MigrationError(f"no ClickHouse at {where} after {seconds:g} s: {error}") from None
            print(f"waiting for ClickHouse at {where}: {waited:.0f} of {seconds:g} s", file=sys.stderr)
            time.sleep(min(1, seconds - waited))
        finally:
            client.disconnect()


def migrate(
    url: str, folder: Path, seconds: float, variant: VariantName = "single", cluster: str = ""
) -> list[str]:
    """Applies the files not applied yet, and returns their names in order."""
    server, database = database_of(url)
    target = Target(variant, cluster, database)
    migrations = varied(read_folder(folder), target)
    wait(server, seconds)
    with Client.from_url(server) as client:
        client.execute(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}{target.on_cluster}")
    with Client.from_url(url) as client:
        _run(client, "schema_migrations", statements([_RECORD], target)[0])
        applied = dict(client.execute("SELECT file, sha256 FROM schema_migrations FINAL"))
        todo = pending(migrations, applied)
        _check_variant(client, variant)
        return [_apply(client, migration, variant) for migration in todo]


def varied(migrations: list[Migration], target: Target) -> list[Migration]:
    """Returns the same files with the statements of the variant.

    Raises MigrationError for a statement without that variant.
    """
    try:
        made = iter(statements((text for m in migrations for text in m.statements), target))
    except VariantError as error:
        raise MigrationError(f"variant {target.variant}: {error}") from None
    return [
        replace(m, statements=tuple(text for _ in m.statements for text in next(made))) for m in migrations
    ]


def _check_variant(client: Client, variant: str) -> None:
    for (made,) in client.execute("SELECT DISTINCT variant FROM schema_migrations"):
        if made != variant:
            raise MigrationError(
                f"variant {variant}: the database was made as {made}; tables do not change their engine, "
                "copy them into a new database"
            )


def _apply(client: Client, migration: Migration, variant: str) -> str:
    _run(client, migration.file, migration.statements)
    row = {"file": migration.file, "sha256": migration.sha256, "variant": variant}
    client.execute("INSERT INTO schema_migrations (file, sha256, variant) VALUES", [row])
    return migration.file


def _run(client: Client, file: str, texts: Iterable[str]) -> None:
    for text in texts:
        try:
            client.execute(text)
        except ServerException as error:
            raise MigrationError(f"{file}: {error}") from error


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


@click.command(cls=command_line.Command)
@click.option("--ddl", type=command_line.PATH, required=True, help="Folder of NNNN_*.sql files.")
@click.option(
    "--variant", type=click.Choice(VARIANTS), help="Default: SPILLWAY_CLICKHOUSE_VARIANT, else single."
)
@click.option("--cluster", help="Name in the servers' remote_servers. Default: SPILLWAY_CLICKHOUSE_CLUSTER.")
def main(ddl: Path, variant: str | None, cluster: str | None) -> int:
    """Applies numbered SQL files in order to the server at SPILLWAY_CLICKHOUSE_URL."""
    given = {"clickhouse_variant": variant, "clickhouse_cluster": cluster}
    config: MigrateConfig = BOX.load(
        "migrate", **{name: value for name, value in given.items() if value is not None}
    )
    # It would log a warning for each attempt to connect
    logging.getLogger("clickhouse_driver").setLevel(logging.ERROR)
    try:
        target = config.clickhouse_variant, config.clickhouse_cluster
        for file in migrate(config.clickhouse_address, ddl, config.wait_s, *target):
            print(f"applied {file}", file=sys.stderr)
    except (MigrationError, Error) as error:
        print(f"migration failed: {error}", file=sys.stderr)
        return exit_codes.FAILED
    print("schema is up to date", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_clickhouse.migrate", wrong_argument=exit_codes.USAGE))
