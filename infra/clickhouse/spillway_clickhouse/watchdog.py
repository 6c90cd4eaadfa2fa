"""Watches clients whose query is running. A Cancel packet or a closed socket kills the query."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable

from spillway_clickhouse.wire import ClientPacket

log = logging.getLogger(__name__)

PERIOD = 0.05  # seconds between checks


class Watchdog:
    """One thread that watches all clients. It sleeps while no query is running.

    `stop` is called again in each period until the query has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[socket.socket, Callable[[], None]] = {}
        self._ended, self._some = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)
        self._thread.start()

    def watch(self, client: socket.socket, stop: Callable[[], None]) -> None:
        with self._lock:
            self._running[client] = stop
            self._some.set()

    def unwatch(self, client: socket.socket) -> None:
        with self._lock:
            self._running.pop(client, None)
            if not self._running:
                self._some.clear()

    def close(self) -> None:
        self._ended.set()
        self._some.set()

    def _loop(self) -> None:
        while self._some.wait() and not self._ended.wait(PERIOD):
            for client in list(self._running):
                self._look(client)

    def _look(self, client: socket.socket) -> None:
        # Under the lock, because a stop after `unwatch` would hit the client's next query.
        with self._lock:
            stop = self._running.get(client)
            try:
                if stop is not None and _wants_to_stop(client):
                    stop()
            except Exception:
                log.exception("cannot stop a query")


def _wants_to_stop(client: socket.socket) -> bool:
    """Returns whether the client's next packet is a Cancel, or the client has disconnected."""
    poller = select.poll()
    try:
        poller.register(client, select.POLLIN)
        if not poller.poll(0):
            return False
        ahead = client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
    return not ahead or ahead[0] == ClientPacket.CANCEL
