"""Runs one client statement: SELECT as a stream of blocks, INSERT from blocks, or any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from spillway_clickhouse import packets, sql
from spillway_clickhouse.channel import Channel
from spillway_clickhouse.engine import EngineConnection, EngineError, Insert
from spillway_clickhouse.native import Block, parse_type, read_blocks

NO_SUCH_COLUMN, SYNTAX_ERROR = 16, 62
_READ_ONLY_COLUMNS = {"MATERIALIZED", "ALIAS"}


def execute(
    connection: EngineConnection,
    channel: Channel,
    text: str,
    found: list[sql.Token],
    stopped: Callable[[], bool],
) -> bytes:
    """Sends the statement's result blocks. Returns the packets before the end of the stream.

    `found`: the tokens of the text. `stopped`: returns whether the client has cancelled. Raises
    EngineError, sql.Unsupported, native.UnsupportedType.
    """
    if connection.parses(text) > 1:
        raise EngineError(SYNTAX_ERROR, "DB::Exception: Syntax error (Multi-statements are not allowed)")
    sql.check_supported(found)
    insert = sql.parse_insert(text, found)
    if insert is not None:
        return packets.progress((0, 0), _insert(connection, channel, insert))
    if found and found[0].upper != "INSERT":
        text = sql.without_format(text, found)
    if sql.is_select(found) and connection.parses(text):
        return _select(connection, channel, text, stopped)
    return _run(connection, channel, text)


def _run(connection: EngineConnection, channel: Channel, text: str) -> bytes:
    result = connection.change(text)
    blocks = read_blocks(result.bytes())
    if blocks:
        channel.send_block(Block(blocks[0].names, blocks[0].types))
    for block in blocks:
        channel.send_block(block)
    read = result.storage_rows_read(), result.storage_bytes_read()
    return packets.progress(read, (result.rows_written(), result.bytes_written()))


def _select(connection: EngineConnection, channel: Channel, text: str, stopped: Callable[[], bool]) -> bytes:
    """Streams the result of a SELECT and returns the Progress packet.

    Names and types come from DESCRIBE. Native loses the zone of DateTime('zone') and writes nothing
    when there are no rows.
    """
    described = connection.rows(f"DESCRIBE TABLE ({text}\n)")
    names, types = tuple(row[0] for row in described), tuple(row[1] for row in described)
    _check_types(types)
    channel.send_block(Block(names, types))
    rows = size = 0
    for result in connection.stream(text):
        for block in read_blocks(result.bytes()):
            channel.send_block(block, types)
        rows, size = rows + result.storage_rows_read(), size + result.storage_bytes_read()
        if stopped():
            break
    return packets.progress((rows, size), (0, 0))


def _insert(connection: EngineConnection, channel: Channel, insert: sql.InsertData) -> tuple[int, int]:
    """Sends a header with the expected columns and inserts the client's blocks until the empty one.

    Returns (rows, bytes) written.
    """
    header = _insert_header(connection, insert)
    with closing(connection.insert(insert.head, insert.settings)) as running:
        channel.send_block(header)
        _receive(channel, header, running)
        return running.finish()


def _insert_header(connection: EngineConnection, insert: sql.InsertData) -> Block:
    types = {
        name: kind
        for name, kind, default, *_ in connection.describe(insert.table)
        if default not in _READ_ONLY_COLUMNS and (insert.columns or default != "EPHEMERAL")
    }
    names = insert.columns or tuple(types)
    for name in names:
        if name not in types:
            raise EngineError(NO_SUCH_COLUMN, f"DB::Exception: No such column {name} in table {insert.table}")
    _check_types(types[name] for name in names)
    return Block(names, tuple(types[name] for name in names))


def _receive(channel: Channel, header: Block, running: Insert) -> None:
    """Feeds the client's blocks to the INSERT, and raises its first error at the end.

    After an error the remaining blocks are read and dropped, so that the protocol stays in step.
    """
    failures: list[EngineError] = []

    def take(block: Block) -> None:
        if failures:
            return
        try:
            # Otherwise the engine would fill columns that it does not find by name with defaults.
            if sorted(block.names) != sorted(header.names):
                text = f"block has columns {', '.join(block.names)}; must be {', '.join(header.names)}"
                raise EngineError(NO_SUCH_COLUMN, f"DB::Exception: {text}")
            if block.rows:
                running.append(block.encode())
        except EngineError as error:
            failures.append(error)

    channel.receive_blocks(take)
    if failures:
        raise failures[0]


def _check_types(types: Iterable[str]) -> None:
    """Raises UnsupportedType now, because later a block would break the stream in the middle."""
    for kind in types:
        parse_type(kind)
