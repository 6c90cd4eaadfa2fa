"""The ClickHouse engine inside this process (PyPI chdb), with one connection per client.

The extension is loaded without the package's `__init__`. That would open and close a temporary
engine, which breaks re-opening and the Kafka engine. After loading, this process must not fork.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from spillway_clickhouse import grants
from spillway_clickhouse.grants import Role

_DEEPBIND = 0x00008  # RTLD_DEEPBIND: the extension must use its own allocator
_ERROR = re.compile(r"Code: (\d+)\. (DB::.*)", re.DOTALL)
_MOST_DESCRIBED = 100
_STREAM_REFUSED = "Streaming query is not supported"
STD_EXCEPTION = 1001  # ClickHouse's code for errors without one of its own
CANNOT_WRITE = 75  # CANNOT_WRITE_TO_FILE_DESCRIPTOR

# The default is 5. With it ClickHouse merges all parts of a small table at about every fifth
# insert. In the local stack, with ten inserts a second, that was most of the engine's work, and
# grew every minute. Reading a few more parts costs less.
_PARTS_PER_MERGE = 30
# How often the engine compares its memory with that of the process. By default it does so 20 times
# a second, which was a fifth of the work of an idle engine.
_MEMORY_CHECK_MS = 1000
# Settings whose defaults differ between the embedded engine and a server.
_SERVER_SETTINGS = {"implicit_select": "0", "async_insert": "0", "allow_introspection_functions": "0"}


class EngineError(Exception):
    """An error of the engine, with ClickHouse's code and message."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code, self.message = code, message

    @classmethod
    def of(cls, error: Exception) -> EngineError:
        found = _ERROR.search(str(error))
        if not found:
            return cls(STD_EXCEPTION, f"DB::Exception: {error}")
        return cls(int(found[1]), found[2])


class Engine:
    """The engine of one data directory. `close` ends it, after all connections were closed."""

    def __init__(
        self, folder: Path, max_threads: int, max_memory: int, roles: Mapping[str, Role] | None = None
    ):
        """`roles`: the roles to which connections may be restricted.

        Without any, all may do everything.
        """
        self._roles = roles or {}
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        data = (folder / "data").resolve()
        configuration = folder / "config.xml"
        users = (folder / "users.xml").resolve()
        if self._roles:
            users.write_text(grants.users_xml(self._roles.values()))
        backups = (folder / "backups").resolve()
        configuration.write_text(_configuration(max_memory, users if self._roles else None, backups))
        arguments = {"config-file": str(configuration.resolve()), "max_threads": str(max_threads)}
        arguments |= _SERVER_SETTINGS
        self.defaults = {"max_threads": str(max_threads)} | _SERVER_SETTINGS
        self._address = f"{data}?" + "&".join(f"{k}={quote(v, safe='/')}" for k, v in arguments.items())
        self._extension = _load_extension()
        self._lock = threading.Lock()
        self.tables = Tables()
        self._admin = self.connect("")
        self.version = str(self._admin.rows("SELECT version()")[0][0])

    def connect(self, mark: str, role: str = grants.ADMIN) -> EngineConnection:
        """Opens a connection. `mark` identifies its queries for `kill`; `role` limits its rights.

        Raises EngineError.
        """
        try:
            connection = EngineConnection(self._extension.connect(self._address), self._folder, self.tables)
        except RuntimeError as error:
            raise EngineError.of(error) from error
        if mark:
            connection.run(f"SET log_comment = '{mark}'")
        if self._roles:
            connection.restrict(role, self._roles[role].settings if role in self._roles else ())
        return connection

    def kill(self, mark: str) -> None:
        """Asks the running query of the connection with this mark, if there is one, to stop."""
        with self._lock:
            self._admin.run(f"KILL QUERY WHERE Settings['log_comment'] = '{mark}' ASYNC")

    def check(self) -> None:
        """Raises EngineError unless the engine answers."""
        with self._lock:
            self._admin.run("SELECT 1")

    def close(self) -> None:
        with self._lock:
            self._admin.close()


class Tables:
    """Counts how often tables, users or a session may have changed."""

    def __init__(self) -> None:
        self.version = 0
        self._lock = threading.Lock()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Surrounds a change. What is read meanwhile belongs to neither version."""
        self._change()
        try:
            yield
        finally:
            self._change()

    def _change(self) -> None:
        with self._lock:
            self.version += 1


class EngineConnection:
    """One session with its current database and settings. Not for use by two threads at once."""

    def __init__(self, connection: Any, spool: Path, tables: Tables):
        self._connection, self._spool, self._tables = connection, spool, tables
        self._role = ""  # '': everything is allowed
        self.settings: dict[str, str] = {}  # the role's settings
        self._described: dict[str, list[list[Any]]] = {}  # by table, at the version `_described_at`
        self._described_at = -1

    def restrict(self, role: str, settings: Iterable[tuple[str, str]]) -> None:
        """Restricts the connection to the role's rights, with these settings."""
        self._role, self.settings = role, dict(settings)
        self.enter_role()
        for name, value in self.settings.items():
            self.run(f"SET {name} = {value}")

    def enter_role(self) -> None:
        """Enters the role; also needed after a client's statement that may have been a SET ROLE."""
        if self._role:
            self.run(f"SET ROLE {self._role}")

    def run(self, text: str, form: str = "Native") -> Any:
        """Runs a statement and returns its whole result. `.bytes()` has the format `form`.

        Raises EngineError.
        """
        try:
            return self._connection.query(text, form)
        except RuntimeError as error:
            raise EngineError.of(error) from error

    def rows(self, text: str) -> list[list[Any]]:
        """Returns the rows of a small result as Python values."""
        return [json.loads(line) for line in self.run(text, "JSONCompactEachRow").bytes().splitlines()]

    def describe(self, table: str) -> list[list[Any]]:
        """Returns DESCRIBE TABLE, cached until tables or settings may have changed.

        It costs about as much as a small insert.
        """
        if self._described_at != self._tables.version or len(self._described) > _MOST_DESCRIBED:
            self.forget()
            self._described_at = self._tables.version
        if table not in self._described:
            self._described[table] = self.rows(f"DESCRIBE TABLE {table}")
        return self._described[table]

    def forget(self) -> None:
        """Clears cached descriptions, which may be wrong under other settings."""
        self._described.clear()

    def change(self, text: str) -> Any:
        """Does what `run` does, for statements that may change tables, rights or this session."""
        with self._tables.changing():
            return self.run(text)

    def stream(self, text: str) -> Iterator[Any]:
        """Yields the results of a SELECT as they arrive.

        A query that cannot stream yields one result. Raises EngineError.
        """
        try:
            handle = self._connection.send_query(text, "Native")
        except RuntimeError as error:
            if _STREAM_REFUSED not in str(error):
                raise EngineError.of(error) from error
            yield self.run(text)
            return
        done = False
        try:
            while (chunk := self._connection.streaming_fetch_result(handle)) and chunk.rows_read():
                yield chunk
            done = True
        except RuntimeError as error:
            done = True
            raise EngineError.of(error) from error
        finally:
            if not done:
                self._connection.streaming_cancel_query(handle)

    def insert(self, head: str, settings: str) -> Insert:
        """Begins an INSERT of `FORMAT Native` bytes.

        `head` ends before SETTINGS, VALUES or FORMAT.
        """
        return Insert(self, head, settings, self._spool)

    def parses(self, text: str) -> int:
        """Returns the number of statements in the text; 0 when it does not parse."""
        return int(self._connection.classify_query(text)["statement_count"])

    def close(self) -> None:
        self._connection.close()


class Insert:
    """An INSERT whose bytes are collected in an unnamed file.

    The rows are in the table once `finish` returns. The connection's streaming insert is not used,
    because it reports success, with the rows counted as written, when the table refuses them
    (constraint, too many parts, partitions, a view's exception).
    """

    def __init__(self, connection: EngineConnection, head: str, settings: str, folder: Path):
        self._connection, self._head, self._settings = connection, head, settings
        self._file = tempfile.TemporaryFile(dir=folder)

    def append(self, native: bytes) -> None:
        try:
            self._file.write(native)
        except OSError as error:
            raise EngineError(CANNOT_WRITE, f"DB::Exception: cannot spool the data: {error}") from error

    def finish(self) -> tuple[int, int]:
        """Runs the INSERT. Returns (rows, bytes) written, including those of materialized views.

        Raises EngineError.
        """
        try:
            self._file.flush()
        except OSError as error:
            raise EngineError(CANNOT_WRITE, f"DB::Exception: cannot spool the data: {error}") from error
        source = f"FROM INFILE '/proc/self/fd/{self._file.fileno()}' COMPRESSION 'none'"
        # On a new line, because the head may end in a line comment.
        result = self._connection.run(f"{self._head}\n{source} {self._settings}\nFORMAT Native")
        return result.rows_written(), result.bytes_written()

    def close(self) -> None:
        """Discards the bytes. Without `finish` nothing was inserted."""
        self._file.close()


def _load_extension() -> ModuleType:
    found = importlib.util.find_spec("chdb")
    if found is None or found.origin is None:
        raise EngineError(STD_EXCEPTION, "DB::Exception: package chdb is not installed")
    path = str(Path(found.origin).with_name("_chdb.abi3.so"))
    # Times without a zone mean UTC on every machine. The engine reads TZ when it starts.
    os.environ["TZ"] = "UTC"
    time.tzset()
    ctypes.CDLL(path, mode=sys.getdlopenflags() | _DEEPBIND)
    loader = importlib.machinery.ExtensionFileLoader("_chdb", path)
    spec = importlib.util.spec_from_file_location("_chdb", path, loader=loader)
    assert spec is not None  # it is None only without a loader
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.set_signal_handlers_enabled(0)  # the process handles SIGTERM itself
    return module


def _configuration(max_memory: int, users: Path | None, backups: Path) -> str:
    cache = max_memory // 8
    access = f"  <users_config>{escape(str(users))}</users_config>\n" if users else ""
    return (
        f"<clickhouse>\n{access}"
        f"  <max_server_memory_usage>{max_memory}</max_server_memory_usage>\n"
        f"  <mark_cache_size>{cache}</mark_cache_size>\n"
        f"  <uncompressed_cache_size>{cache}</uncompressed_cache_size>\n"
        "  <background_pool_size>2</background_pool_size>\n"
        f"  <memory_worker_period_ms>{_MEMORY_CHECK_MS}</memory_worker_period_ms>\n"
        f"  <merge_tree><merge_selector_base>{_PARTS_PER_MERGE}</merge_selector_base></merge_tree>\n"
        f"  <backups><allowed_path>{escape(str(backups))}/</allowed_path></backups>\n"
        "</clickhouse>\n"
    )
