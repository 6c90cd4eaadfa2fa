"""One client's session: greeting, database, settings, and answers to its packets."""

from __future__ import annotations

import hmac
import logging
import re
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from spillway_clickhouse import packets, sql
from spillway_clickhouse.channel import Channel, ClientCancelled
from spillway_clickhouse.engine import Engine, EngineConnection, EngineError
from spillway_clickhouse.execute import execute
from spillway_clickhouse.grants import ADMIN
from spillway_clickhouse.native import Block, UnsupportedType
from spillway_clickhouse.packets import Query
from spillway_clickhouse.watchdog import Watchdog
from spillway_clickhouse.wire import ClientPacket, WireError

log = logging.getLogger(__name__)

# ClickHouse's codes (src/Common/ErrorCodes.cpp)
UNKNOWN_DATABASE, UNEXPECTED_PACKET, UNKNOWN_SETTING = 81, 99, 115
READONLY, CANCELLED, ACCESS_DENIED, AUTHENTICATION_FAILED = 164, 394, 497, 516
_HELLO_TIMEOUT = 10.0  # seconds
_SETTING = re.compile(r"[A-Za-z_][\w.]*")
_OFF = ("0", "false", "False")
Settings = dict[str, tuple[str, bool]]  # name -> (value, whether an unknown name is an error)


@dataclass(frozen=True)
class Account:
    """A user of this server, with the role that its sessions take."""

    user: str
    password: str
    role: str

    def match(self, user: str, password: str) -> bool:
        given, wanted = f"{user}\0{password}".encode(), f"{self.user}\0{self.password}".encode()
        return hmac.compare_digest(given, wanted)


class Session:
    """Serves one connected socket until the client leaves. `serve` never raises."""

    def __init__(
        self, client: socket.socket, engine: Engine, accounts: Sequence[Account], watchdog: Watchdog
    ):
        self._channel = Channel(client)
        self._reader = self._channel.reader
        self._engine, self._accounts, self._watchdog = engine, accounts, watchdog
        self._role = ""  # the account's role, known after the greeting
        self._mark = uuid.uuid4().hex
        # Name -> literal that is restored after a query's own setting
        self._settings = dict(engine.defaults)
        # The settings of the last query, still in force; None: they must be applied again
        self._given: Settings | None = {}
        self._changed: list[str] = []  # names of those settings that the engine has taken
        self._database = ""  # the Hello's database until it is entered, then ''
        self._cancelled = False
        # Whether the previous statement may have changed the connection's role
        self._role_in_doubt = False
        self._opened: EngineConnection | None = None  # None until the greeting

    @property
    def _connection(self) -> EngineConnection:
        """The engine's connection, which the greeting opens."""
        assert self._opened is not None  # packets are answered only after a successful greeting
        return self._opened

    def serve(self) -> None:
        """Greets the client and answers its packets until it leaves."""
        try:
            if self._greet():
                while self._packet():
                    pass
        except (EOFError, ConnectionError, TimeoutError):
            pass  # the client left
        except Exception as error:
            log.warning("connection dropped: %s: %s", type(error).__name__, error)
        finally:
            if self._opened is not None:
                self._opened.close()

    def _greet(self) -> bool:
        self._channel.socket.settimeout(_HELLO_TIMEOUT)
        if (packet := self._reader.varint()) != ClientPacket.HELLO:
            raise WireError(f"packet {packet} before Hello; is the client speaking another protocol?")
        hello = packets.read_hello(self._reader)
        matching = [account for account in self._accounts if account.match(hello.user, hello.password)]
        if not matching:
            text = "Authentication failed: password is incorrect, or there is no user with such name."
            return self._refuse(AUTHENTICATION_FAILED, f"{hello.user}: {text}")
        if hello.revision < packets.MIN_CLIENT_REVISION:
            text = f"client revision {hello.revision} is older than {packets.MIN_CLIENT_REVISION}"
            return self._refuse(sql.UNSUPPORTED, text)
        self._role = matching[0].role
        try:
            self._opened = self._engine.connect(self._mark, self._role)
        except EngineError as error:
            self._channel.send(packets.exception(error.code, error.message))
            return False
        self._settings |= self._connection.settings
        self._database = hello.database
        self._channel.socket.settimeout(None)
        self._channel.send(packets.hello(self._engine.version))
        return True

    def _refuse(self, code: int, text: str) -> bool:
        self._channel.send(packets.exception(code, f"DB::Exception: {text}"))
        return False

    def _packet(self) -> bool:
        packet = self._reader.varint()
        if packet == ClientPacket.PING:
            self._channel.send(packets.PONG)
        elif packet == ClientPacket.QUERY:
            self._query(packets.read_query(self._reader))
        # A Cancel that arrives after the query's end is not an error
        elif packet != ClientPacket.CANCEL:
            return self._refuse(UNEXPECTED_PACKET, f"packet {packet} is not expected or not supported")
        return True

    def _query(self, query: Query) -> None:
        self._channel.compressed, self._cancelled = query.compressed, False
        try:
            self._channel.send(self._answer(query) + packets.END_OF_STREAM)
        except ClientCancelled:
            text = "Query was cancelled. (QUERY_WAS_CANCELLED)"
            self._refuse(CANCELLED, text)
        except EngineError as error:
            if self._cancelled and error.code == CANCELLED:
                self._channel.send(packets.END_OF_STREAM)  # a server answers Cancel in this way
            else:
                self._channel.send(packets.exception(error.code, error.message))
        except (sql.Unsupported, UnsupportedType) as error:
            self._refuse(sql.UNSUPPORTED, f"not supported by the embedded engine's server: {error}")

    def _answer(self, query: Query) -> bytes:
        external: list[Block] = []
        self._channel.receive_blocks(external.append)  # every query ends with an empty block
        if external:
            raise sql.Unsupported("external tables sent with a query")
        if not query.complete:
            raise sql.Unsupported("query stages other than Complete")
        found = sql.tokens(query.text)
        self._check_role(found)
        if self._role_in_doubt:
            self._connection.enter_role()
        self._role_in_doubt = any(token.upper == "ROLE" for token in found)
        self._use_database(found)
        if query.settings != self._given:
            self._take_back()
            self._apply(query.settings)
        try:
            return self._execute(query.text, found)
        finally:
            if found and found[0].upper == "SET":
                self._take_back()

    def _take_back(self) -> None:
        """Restores the settings before the previous query's own.

        They stay until a query comes with other settings, which most clients never send, or until
        the client has sent a SET of its own.
        """
        self._given = None
        self._connection.forget()
        if self._changed:
            before = (f"{name} = {self._settings.get(name, 'DEFAULT')}" for name in self._changed)
            try:
                self._connection.run(f"SET {', '.join(before)}")
            except EngineError as error:  # for example after readonly = 1; the session is over
                raise WireError(f"settings of the previous query cannot be reset: {error.message}") from error
            self._changed = []

    def _check_role(self, found: list[sql.Token]) -> None:
        """Refuses KILL and ROLE statements of clients without the admin role.

        All sessions are one user of the engine, so the engine would let each of them kill the
        others' queries.
        """
        words = [token.upper for token in found]
        if self._role != ADMIN and ("KILL" in words[:3] or "ROLE" in words[1:3]):
            text = f"{self._role}: Not enough privileges: {' '.join(words[:2])} is not for this user."
            raise EngineError(ACCESS_DENIED, f"DB::Exception: {text}")

    def _use_database(self, found: list[sql.Token]) -> None:
        """Enters the Hello's database before the first query.

        Only the statement that creates the database may come before.
        """
        if not self._database:
            return
        escaped = self._database.replace("\\", "\\\\").replace("`", "\\`")
        try:
            self._connection.run(f"USE `{escaped}`")
        except EngineError as error:
            creates = [token.upper for token in found[:2]] == ["CREATE", "DATABASE"]
            if error.code == UNKNOWN_DATABASE and creates:
                return
            raise
        self._database = ""

    def _apply(self, settings: Settings) -> None:
        """Applies the settings of a query with SET.

        They are set together, since each statement costs the engine about as much as a small
        insert. If the engine does not accept them together, they are set one by one.
        """
        assignments = {name: _assigned(name, value) for name, (value, _) in settings.items()}
        try:
            self._set(assignments)
        except EngineError:
            for name, assignment in assignments.items():
                try:
                    self._set({name: assignment})
                except EngineError as error:
                    # [1]: an unknown name is an error
                    if settings[name][1] or error.code != UNKNOWN_SETTING:
                        raise
                    log.warning("setting %s is unknown and not marked important; it is ignored", name)
        self._given = settings

    def _set(self, assignments: dict[str, str]) -> None:
        if assignments:
            self._connection.run(f"SET {', '.join(assignments.values())}")
            self._changed += assignments

    def _execute(self, text: str, found: list[sql.Token]) -> bytes:
        settings = sql.parse_set(text, found)
        for name in settings:
            _check_mark(name)
        # An INSERT reads the socket itself, so it detects a Cancel and the end by itself.
        reads = sql.parse_insert(text, found) is not None
        if not reads:
            self._watchdog.watch(self._channel.socket, self._stop)
        try:
            answer = execute(self._connection, self._channel, text, found, lambda: self._cancelled)
        finally:
            self._watchdog.unwatch(self._channel.socket)
        self._settings |= settings
        return answer

    def _stop(self) -> None:
        self._cancelled = True
        self._engine.kill(self._mark)


def _assigned(name: str, value: str) -> str:
    """Returns `name = 'value'` for SET. Raises EngineError, sql.Unsupported."""
    if not _SETTING.fullmatch(name):
        raise EngineError(UNKNOWN_SETTING, f"DB::Exception: Unknown setting '{name}'")
    _check_mark(name)
    if name == "extremes" and value not in _OFF:
        raise sql.Unsupported("setting extremes")
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name} = '{escaped}'"


def _check_mark(setting: str) -> None:
    if setting == "log_comment":
        raise EngineError(
            READONLY, "DB::Exception: log_comment cannot be set: this server uses it for KILL QUERY"
        )
