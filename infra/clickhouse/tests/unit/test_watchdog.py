"""The watchdog stops the query of a client that wants to stop, and sleeps while there is none."""

import socket
import threading

from spillway_clickhouse.watchdog import Watchdog
from spillway_clickhouse.wire import ClientPacket


def test_a_disconnected_client_is_noticed_after_a_time_without_queries() -> None:
    """The thread that slept wakes up for the next query, and again for one after that."""
    watchdog = Watchdog()
    try:
        for last_words in (b"", bytes([ClientPacket.CANCEL])):
            client, server = socket.socketpair()
            stopped = threading.Event()
            watchdog.watch(server, stopped.set)
            client.sendall(last_words)
            client.shutdown(socket.SHUT_WR)
            assert stopped.wait(10)
            watchdog.unwatch(server)
            client.close()
            server.close()
    finally:
        watchdog.close()


def test_an_unwatched_client_is_left_alone() -> None:
    watchdog = Watchdog()
    gone, watched = threading.Event(), threading.Event()
    (client, server), (other, other_server) = socket.socketpair(), socket.socketpair()
    with client, server, other, other_server:
        watchdog.watch(server, gone.set)
        watchdog.unwatch(server)
        client.shutdown(socket.SHUT_WR)
        # A query that does stop shows that the watchdog has looked meanwhile.
        watchdog.watch(other_server, watched.set)
        other.shutdown(socket.SHUT_WR)
        assert watched.wait(10)
        watchdog.close()
    assert not gone.is_set()


def test_closing_ends_a_sleeping_thread() -> None:
    watchdog = Watchdog()
    watchdog.close()
    watchdog._thread.join(10)
    assert not watchdog._thread.is_alive()
