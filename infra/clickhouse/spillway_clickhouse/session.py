"""One client: reads its packets, lets the engine do what they ask, writes the answers."""

from __future__ import annotations

import hmac
import logging
import re
import socket
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import packets, sql, wire
from .engine import Engine, EngineConnection, EngineError, Insert
from .native import Block, UnsupportedType, parse_type, read_block, read_blocks
from .packets import Query
from .watchdog import Watchdog
from .wire import ClientPacket, Reader, ServerPacket, WireError

log = logging.getLogger(__name__)

AUTHENTICATION_FAILED, UNKNOWN_SETTING, UNKNOWN_DATABASE = 516, 115, 81
NO_SUCH_COLUMN, SYNTAX_ERROR, READONLY, CANCELLED, UNEXPECTED_PACKET = 16, 62, 164, 394, 99
_HELLO_TIMEOUT = 10.0  # seconds
_RECEIVE = 1 << 20  # bytes asked of the socket at once
_SETTING = re.compile(r"[A-Za-z_][\w.]*")
_READ_ONLY_COLUMNS = {"MATERIALIZED", "ALIAS"}


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str

    def match(self, user: str, password: str) -> bool:
        given, wanted = f"{user}\0{password}".encode(), f"{self.user}\0{self.password}".encode()
        return hmac.compare_digest(given, wanted)


class Session:
    """Serves one connected socket until the client leaves. `serve` never raises."""

    def __init__(self, client: socket.socket, engine: Engine, credentials: Credentials, watchdog: Watchdog):
        self._socket, self._engine, self._credentials = client, engine, credentials
        self._watchdog = watchdog
        self._reader = Reader(lambda: client.recv(_RECEIVE))
        self._mark = uuid.uuid4().hex
        self._settings = dict(engine.defaults)  # name -> literal, what DEFAULT means in this session
        self._pending_database = ""
        self._compressed = self._cancelled = False
        self._connection: EngineConnection | None = None

    def serve(self) -> None:
        try:
            if self._greet():
                while self._packet():
                    pass
        except (EOFError, ConnectionError, TimeoutError):
            pass  # the client left
        except Exception as error:
            log.warning("connection dropped: %s: %s", type(error).__name__, error)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _greet(self) -> bool:
        self._socket.settimeout(_HELLO_TIMEOUT)
        if (packet := self._reader.varint()) != ClientPacket.HELLO:
            raise WireError(f"packet {packet} before Hello; is the client speaking another protocol?")
        hello = packets.read_hello(self._reader)
        if not self._credentials.match(hello.user, hello.password):
            text = "Authentication failed: password is incorrect, or there is no user with such name."
            self._send(packets.exception(AUTHENTICATION_FAILED, f"DB::Exception: {hello.user}: {text}"))
            return False
        if hello.revision < packets.MIN_CLIENT_REVISION:
            text = f"client revision {hello.revision} is older than {packets.MIN_CLIENT_REVISION}"
            self._send(packets.exception(sql.UNSUPPORTED, f"DB::Exception: {text}"))
            return False
        try:
            self._connection = self._engine.connect(self._mark)
        except EngineError as error:
            self._send(packets.exception(error.code, error.message))
            return False
        self._pending_database = hello.database
        self._socket.settimeout(None)
        self._send(packets.hello(self._engine.version))
        return True

    def _packet(self) -> bool:
        packet = self._reader.varint()
        if packet == ClientPacket.PING:
            self._send(packets.PONG)
        elif packet == ClientPacket.QUERY:
            self._query(packets.read_query(self._reader))
        elif packet != ClientPacket.CANCEL:  # a Cancel that came after the end is not an error
            text = f"DB::Exception: packet {packet} is not expected or not supported"
            self._send(packets.exception(UNEXPECTED_PACKET, text))
            return False
        return True

    def _query(self, query: Query) -> None:
        self._compressed, self._cancelled = query.compressed, False
        try:
            if self._drain():  # ends with an empty block, for every query
                raise sql.Unsupported("external tables sent with a query")
            if not query.complete:
                raise sql.Unsupported("query stages other than Complete")
            self._use_database(query.text)
            changed: list[str] = []
            try:
                self._apply(query.settings, changed)
                answer = self._execute(query.text)
            finally:
                self._restore(changed)
            self._send(answer + packets.END_OF_STREAM)
        except EngineError as error:
            if self._cancelled and error.code == CANCELLED:
                self._send(packets.END_OF_STREAM)  # as a server answers Cancel
            else:
                self._send(packets.exception(error.code, error.message))
        except (sql.Unsupported, UnsupportedType) as error:
            text = f"DB::Exception: not supported by the embedded engine's server: {error}"
            self._send(packets.exception(sql.UNSUPPORTED, text))

    def _use_database(self, text: str) -> None:
        """Enters the Hello's database before the first query; only CREATE DATABASE may come before it is there."""
        if not self._pending_database:
            return
        escaped = self._pending_database.replace("\\", "\\\\").replace("`", "\\`")
        try:
            self._connection.run(f"USE `{escaped}`")
        except EngineError as error:
            words = [token.upper for token in sql.tokens(text)[:2]]
            if error.code == UNKNOWN_DATABASE and words == ["CREATE", "DATABASE"]:
                return
            raise
        self._pending_database = ""

    def _apply(self, settings: dict[str, tuple[str, bool]], changed: list[str]) -> None:
        """SETs each setting of a query; names that were set are appended to `changed`."""
        for name, (value, important) in settings.items():
            if not _SETTING.fullmatch(name):
                raise EngineError(UNKNOWN_SETTING, f"DB::Exception: Unknown setting '{name}'")
            if name == "log_comment":
                raise EngineError(READONLY, "DB::Exception: log_comment is this server's mark for KILL QUERY")
            if name == "extremes" and value not in ("0", "False", "false"):
                raise sql.Unsupported("setting extremes")
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            try:
                self._connection.run(f"SET {name} = '{escaped}'")
                changed.append(name)
            except EngineError as error:
                if important or error.code != UNKNOWN_SETTING:
                    raise
                log.warning("setting %s is not known and not important: ignored", name)

    def _restore(self, changed: list[str]) -> None:
        for name in changed:
            self._connection.run(f"SET {name} = {self._settings.get(name, 'DEFAULT')}")

    def _execute(self, text: str) -> bytes:
        """Runs one statement and sends its blocks; returns the packets that go before the end."""
        found = sql.tokens(text)
        if self._connection.parses(text) > 1:
            raise EngineError(SYNTAX_ERROR, "DB::Exception: Syntax error (Multi-statements are not allowed)")
        sql.check_supported(found)
        insert = sql.parse_insert(text, found)
        if insert is not None:
            return packets.progress((0, 0), self._insert(insert))
        if found and found[0].upper != "INSERT":
            text = sql.without_format(text, found)
        self._watchdog.watch(self._socket, self._stop)
        try:
            if sql.is_select(found) and self._connection.parses(text):
                return self._select(text)
            return self._run(text, found)
        finally:
            self._watchdog.unwatch(self._socket)

    def _run(self, text: str, found: list[sql.Token]) -> bytes:
        settings = sql.parse_set(text, found)
        if "log_comment" in settings:
            raise EngineError(READONLY, "DB::Exception: log_comment is this server's mark for KILL QUERY")
        result = self._connection.run(text)
        for name, literal in settings.items():
            self._settings[name] = literal
        blocks = read_blocks(result.bytes())
        if blocks:
            self._send_block(Block(blocks[0].names, blocks[0].types))
        for block in blocks:
            self._send_block(block)
        read = result.storage_rows_read(), result.storage_bytes_read()
        return packets.progress(read, (result.rows_written(), result.bytes_written()))

    def _select(self, text: str) -> bytes:
        """Native drops the zone of DateTime('zone') and writes nothing for no rows: DESCRIBE tells both."""
        described = self._connection.rows(f"DESCRIBE TABLE ({text}\n)")
        names, types = tuple(row[0] for row in described), tuple(row[1] for row in described)
        _check_types(types)
        self._send_block(Block(names, types))
        rows = size = 0
        for result in self._connection.stream(text):
            for block in read_blocks(result.bytes()):
                self._send_block(block, types)
            rows, size = rows + result.storage_rows_read(), size + result.storage_bytes_read()
            if self._cancelled:
                break
        return packets.progress((rows, size), (0, 0))

    def _insert(self, insert: sql.InsertData) -> tuple[int, int]:
        """Sends the columns that are wanted, takes blocks until an empty one. (rows, bytes) written."""
        header = self._insert_header(insert)
        running = self._connection.insert(insert.head)
        self._send_block(header)
        try:
            self._receive(header, running)
            return running.finish()
        except BaseException:
            running.cancel()
            raise

    def _insert_header(self, insert: sql.InsertData) -> Block:
        types = {
            name: kind
            for name, kind, default, *_ in self._connection.rows(f"DESCRIBE TABLE {insert.table}")
            if default not in _READ_ONLY_COLUMNS and (insert.columns or default != "EPHEMERAL")
        }
        names = insert.columns or tuple(types)
        for name in names:
            if name not in types:
                text = f"DB::Exception: No such column {name} in table {insert.table}"
                raise EngineError(NO_SUCH_COLUMN, text)
        _check_types(types[name] for name in names)
        return Block(names, tuple(types[name] for name in names))

    def _receive(self, header: Block, running: Insert) -> None:
        """Feeds the client's blocks; after an error the rest is read and dropped, to stay in step."""
        failure: Exception | None = None

        def take(block: Block) -> None:
            nonlocal failure
            if failure is not None:
                return
            try:
                if set(block.names) != set(header.names):
                    text = f"block has columns {', '.join(block.names)}, wanted: {', '.join(header.names)}"
                    raise EngineError(NO_SUCH_COLUMN, f"DB::Exception: {text}")
                if block.rows:
                    running.append(block.encode())
            except EngineError as error:
                failure = error

        self._drain(take)
        if failure is not None:
            raise failure

    def _drain(self, take: Callable[[Block], None] | None = None) -> int:
        """Reads Data packets up to the empty block; number of blocks before it."""
        blocks = 0
        while True:
            packet = self._reader.varint()
            if packet == ClientPacket.CANCEL:
                self._cancelled = True
                raise EngineError(CANCELLED, "DB::Exception: Query was cancelled. (QUERY_WAS_CANCELLED)")
            if packet != ClientPacket.DATA:
                raise WireError(f"packet {packet} where Data was expected")
            self._reader.string()  # name of an external table, '' for rows of an INSERT
            block = self._read_block()
            if not block.names:
                return blocks
            blocks += 1
            if take is not None:
                take(block)

    def _read_block(self) -> Block:
        reader = Reader(lambda: wire.read_frame(self._reader)) if self._compressed else self._reader
        wire.skip_block_info(reader)
        block = read_block(reader)
        if self._compressed and reader.buffered:
            raise WireError(f"{reader.buffered} bytes after the end of a compressed block")
        return block

    def _send_block(self, block: Block, types: tuple[str, ...] | None = None) -> None:
        data = wire.BLOCK_INFO + block.encode(types)
        if self._compressed:
            data = wire.compress(data)
        self._send(wire.varint(ServerPacket.DATA) + wire.string("") + data)

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _stop(self) -> None:
        self._cancelled = True
        self._engine.kill(self._mark)


def _check_types(types: Iterable[str]) -> None:
    """UnsupportedType before a block of such a column would break the stream in its middle."""
    for kind in types:
        parse_type(kind)
