"""The ClickHouse engine as a separate server: `python -m spillway_clickhouse.server`.

Only wiring: configuration, listening, one thread per client, a clean exit on SIGTERM.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import socket
import threading

from spillway_runtime import exit_codes, health, logs
from spillway_runtime.settings import address

from spillway_clickhouse import packets
from spillway_clickhouse.config import BOX, ServerConfig
from spillway_clickhouse.engine import Engine, EngineError
from spillway_clickhouse.grants import ADMIN
from spillway_clickhouse.session import Account, Session
from spillway_clickhouse.watchdog import Watchdog

log = logging.getLogger("spillway_clickhouse")

_TOO_MANY_QUERIES = 202
_ENDS = {signal.SIGTERM, signal.SIGINT}
_GRACE = 2.0  # seconds for running queries to end
_DEADLINE = 4.0  # seconds from SIGTERM to the exit, whatever happens


class Server:
    """Accepts clients and keeps their sessions. `run` returns after `stop` was called."""

    def __init__(self, config: ServerConfig, engine: Engine):
        password = config.clickhouse_password.get_secret_value()
        self._accounts = [
            Account(config.clickhouse_user, password, ADMIN),
            *(Account(user, secret, user) for user, secret in config.accounts.items()),
        ]
        self._engine, self._limit = engine, config.max_connections
        self._watchdog = Watchdog()
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        host, port = address(config.clickhouse_listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=256)

    def run(self) -> None:
        """Accepts clients until `stop` closes the listener."""
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except OSError:
                break  # closed by `stop`
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._begin(client)

    def _begin(self, client: socket.socket) -> None:
        with self._lock:
            if len(self._clients) >= self._limit:
                text = f"DB::Exception: Too many connections; at most {self._limit} are allowed"
                client.sendall(packets.exception(_TOO_MANY_QUERIES, text))
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="client", daemon=True)
            self._clients[client] = thread
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            Session(client, self._engine, self._accounts, self._watchdog).serve()
        finally:
            with self._lock:
                del self._clients[client]
            client.close()

    def stop(self) -> None:
        """Stops listening and disconnects all clients. The watchdog stops their running queries."""
        self._stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            clients = dict(self._clients)
        for client in clients:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client has disconnected meanwhile
        for thread in clients.values():
            thread.join(_GRACE / max(1, len(clients)))
        self._watchdog.close()


class Readiness:
    """Ready while there is an engine that answers."""

    engine: Engine | None = None

    def report(self) -> health.Report:
        """Returns what the health endpoint answers."""
        if self.engine is None:
            return health.Report({"engine": "starting or stopping"})
        try:
            self.engine.check()
        except EngineError as error:
            return health.Report({"engine": error.message})
        return health.Report({})


def main() -> None:
    """Runs the server until SIGTERM or SIGINT. Exits with code 1 when it cannot start."""
    config: ServerConfig = BOX.load("server")
    logs.start()
    readiness = Readiness()
    # Blocked before any thread starts, so that only `sigwait` below takes these signals. A signal
    # that a thread of the engine takes does not wake Python's main thread, and the thread of the
    # health endpoint would end the process at once while the engine starts.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    endpoint = health.Server(config.health_listen, readiness.report)
    try:
        engine = Engine(
            config.state_dir / "clickhouse",
            config.max_threads,
            config.max_memory_bytes,
            config.roles,
        )
        server = Server(config, engine)
    except (EngineError, OSError) as error:
        log.error("cannot start: %s", error)
        raise SystemExit(exit_codes.FAILED) from None
    threading.Thread(target=server.run, name="listener", daemon=True).start()
    readiness.engine = engine
    log.info("ClickHouse engine %s listens on %s", engine.version, config.clickhouse_listen)
    signal.sigwait(_ENDS)
    # A query that does not check whether it was killed can delay the engine, which may hold
    # Python's GIL meanwhile. This timer needs no GIL. It prints where every thread was and exits
    # with code 1.
    faulthandler.dump_traceback_later(_DEADLINE, exit=True)
    readiness.engine = None
    server.stop()
    engine.close()
    endpoint.close()
    log.info("stopped")
    logging.shutdown()
    os._exit(0)  # the engine's exit handlers may wait for its background threads


if __name__ == "__main__":
    main()
