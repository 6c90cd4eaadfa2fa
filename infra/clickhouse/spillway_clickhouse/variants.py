"""Rewrites the DDL for one server, for replicas or for shards: statement -> statements. Pure.

single       as written
cloud        as written, for a managed service that replicates by itself: it replaces MergeTree
             with an engine of its own and runs every statement on all servers. The deduplication
             window is the one of replicated tables
replicated   ENGINE = X becomes ReplicatedX, and every statement runs ON CLUSTER
distributed  as replicated. In addition, a table with `COMMENT 'sharded by <columns>'` becomes
             `<table>_local` on every shard, under a Distributed table with its own name. A table
             with `COMMENT 'whole on every node'` becomes one table replicated on all nodes, so
             that joins with it never leave a node

Sharding columns are columns of the order key. So rows that replace each other are on one shard, and
FINAL is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from spillway_clickhouse.sql import Token, tokens

VariantName = Literal["single", "cloud", "replicated", "distributed"]
VARIANTS = get_args(VariantName)
# The variants that name a cluster of servers.
CLUSTERED = ("replicated", "distributed")
WHOLE = "whole on every node"
_SHARDED = re.compile(r"sharded by ([a-z_]+(?:, [a-z_]+)*)")
_WINDOW = "non_replicated_deduplication_window"
# Also bounded by time. ClickHouse's default of one hour is less than Kafka keeps messages, and less
# than a job may be away.
_REPLICATED_WINDOW = "replicated_deduplication_window_seconds = 604800, replicated_deduplication_window"


class VariantError(ValueError):
    """The statement has no such variant. The message says which statement and why."""


@dataclass(frozen=True)
class Target:
    """Where the schema is created.

    The variant, the cluster's name ('' when the variant has none) and the database.
    """

    variant: VariantName = "single"
    cluster: str = ""
    database: str = ""

    @property
    def on_cluster(self) -> str:
        if self.variant not in CLUSTERED:
            return ""
        return f" ON CLUSTER {_literal(self.cluster)}"


@dataclass(frozen=True)
class _Statement:
    """A statement's tokens, with the position of the object's name among them."""

    text: str
    found: list[Token]
    name_at: int

    @property
    def name(self) -> str:
        return self.found[self.name_at].name

    def named(self, name: str, addition: str) -> str:
        """Returns the text with another name for the object and `addition` after it."""
        token = self.found[self.name_at]
        return self.text[: token.start] + name + addition + self.text[token.end :]


def statements(texts: Iterable[str], target: Target) -> list[tuple[str, ...]]:
    """Returns the variant of each statement of a schema, in order. Raises VariantError."""
    placings: dict[str, tuple[str, ...]] = {}
    return [_variant(text, target, placings) for text in texts]


def _variant(text: str, target: Target, placings: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    if target.variant == "single":
        return (text,)
    statement, verb, kind = _parse(text)
    if (verb, kind) == ("CREATE", "TABLE"):
        placings[statement.name] = _placing(statement)
        return _create(statement, target, placings[statement.name])
    columns = placings.get(statement.name, ()) if target.variant == "distributed" and kind == "TABLE" else ()
    if not columns:
        return (statement.named(statement.name, target.on_cluster),)
    local = statement.named(f"{statement.name}_local", target.on_cluster)
    if verb == "DROP":
        return statement.named(statement.name, target.on_cluster), local
    # The Distributed table is created again, because the columns may have changed.
    return local, _distributed("CREATE OR REPLACE TABLE", statement.name, target, columns)


def _parse(text: str) -> tuple[_Statement, str, str]:
    """Returns the statement, its verb (CREATE, ALTER or DROP) and its kind (TABLE or VIEW)."""
    found = tokens(text)
    words = [token.upper for token in found] + [""] * 3
    at = 3 if words[:3] == ["CREATE", "OR", "REPLACE"] else 1
    verb, kind = words[0], words[at]
    at += 1
    for known in (["IF", "NOT", "EXISTS"], ["IF", "EXISTS"]):
        if words[at : at + len(known)] == known:
            at += len(known)
    allowed = {
        ("CREATE", "TABLE"),
        ("CREATE", "VIEW"),
        ("ALTER", "TABLE"),
        ("DROP", "TABLE"),
        ("DROP", "VIEW"),
    }
    if (verb, kind) not in allowed:
        # A materialized view would count a repeated insert twice, even if its table deduplicates
        # inserts.
        raise VariantError(
            f"{' '.join(words[:3]).strip()}: only tables and views can be created, altered and dropped"
        )
    if words[at + 1] == "." or words[at + 1 : at + 3] == ["ON", "CLUSTER"]:
        raise VariantError(
            f"{found[at].name}: must be named without database and cluster; the URL and --cluster give them"
        )
    return _Statement(text, found, at), verb, kind


def _placing(statement: _Statement) -> tuple[str, ...]:
    """Returns the sharding columns in the table's COMMENT; () for a table whole on every node."""
    found = statement.found
    comment = found[-1].text[1:-1] if found[-1].kind == "string" and found[-2].upper == "COMMENT" else ""
    match = _SHARDED.fullmatch(comment)
    if not match and comment != WHOLE:
        raise VariantError(
            f"{statement.name}: ends in COMMENT '{comment}'; must be 'sharded by <columns>' or '{WHOLE}'"
        )
    columns = tuple(match[1].split(", ")) if match else ()
    for column in columns:
        if column not in _order_key(statement):
            raise VariantError(f"{statement.name}: sharded by {column}; must be a column of its ORDER BY")
    return columns


def _order_key(statement: _Statement) -> set[str]:
    words = [token.upper for token in statement.found]
    at = next(i for i in range(len(words) - 1) if words[i : i + 2] == ["ORDER", "BY"]) + 2
    depth, names = 0, set()
    for token in statement.found[at:]:
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        names.add(token.name)
        if depth == 0:
            break
    return names


def _create(statement: _Statement, target: Target, columns: tuple[str, ...]) -> tuple[str, ...]:
    is_sharded = bool(columns) and target.variant == "distributed"
    is_whole = not columns and target.variant == "distributed"
    name = f"{statement.name}_local" if is_sharded else statement.name
    text = statement.named(name, target.on_cluster)
    found = tokens(text)
    for token in reversed(found):  # from the end, so that earlier positions stay valid
        if token.upper == _WINDOW.upper():
            text = text[: token.start] + _REPLICATED_WINDOW + text[token.end :]
    if target.variant != "cloud":
        text = _replicated(text, found, name, is_whole)
    if not is_sharded:
        return (text,)
    return text, _distributed("CREATE TABLE IF NOT EXISTS", statement.name, target, columns)


def _replicated(text: str, found: list[Token], name: str, is_whole: bool) -> str:
    at = next(
        (i for i in range(len(found) - 2) if found[i].upper == "ENGINE" and found[i + 1].upper == "="), None
    )
    if (
        at is None
        or not found[at + 2].text.endswith("MergeTree")
        or found[at + 2].text.startswith("Replicated")
    ):
        raise VariantError(f"{name}: needs ENGINE = <...>MergeTree, not a replicated one")
    engine = found[at + 2]
    # With the same path for all shards, every node is a replica of the same table.
    path, replica = ("all", "{shard}-{replica}") if is_whole else ("{shard}", "{replica}")
    identity = f"'/clickhouse/tables/{path}/{{database}}/{name}', '{replica}'"
    end, arguments = engine.end, ""
    if found[at + 3].upper == "(":
        closing = next(token for token in found[at + 3 :] if token.upper == ")")
        end, arguments = closing.end, ", " + text[found[at + 3].end : closing.start].strip()
    return f"{text[: engine.start]}Replicated{engine.text}({identity}{arguments}){text[end:]}"


def _distributed(create: str, name: str, target: Target, columns: tuple[str, ...]) -> str:
    where = f"{_literal(target.cluster)}, {_literal(target.database)}, '{name}_local'"
    return (
        f"{create} {name}{target.on_cluster} AS {name}_local\n"
        f"ENGINE = Distributed({where}, cityHash64({', '.join(columns)}))"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
