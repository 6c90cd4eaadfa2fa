"""nats-py starts TLS because the server's first line requests it.

At that time the server is not yet authenticated.
"""

import asyncio
import json
import ssl

import pytest
from nats.errors import Error
from spillway_contracts import nats_client


async def _received(info: dict, **options) -> tuple[bytes, str]:
    """Connects to a server that sends `info` and then hangs up.

    Returns the bytes that the server received, and the error's text.
    """
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        await writer.drain()
        received.extend(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises((Error, OSError)) as failed:
            await nats_client.connect(
                f"tls://user:top-secret@{host}:{port}", allow_reconnect=False, **options
            )
        return bytes(received), str(failed.value)


@pytest.mark.parametrize("info", [{}, {"tls_required": False}, {"tls_available": True}])
def test_a_server_that_asks_for_no_tls_hears_nothing(info):
    """An attacker may remove the request for TLS from the server's first line.

    It gets no password.
    """
    info = {"auth_required": True, "max_payload": 1024} | info
    received, why = asyncio.run(_received(info, tls=ssl.create_default_context()))
    assert received == b""
    assert "does not require TLS" in why


def test_a_server_that_asks_for_tls_hears_its_beginning():
    """The same client begins a handshake, and sends nothing else before its end."""
    info = {"auth_required": True, "max_payload": 1024, "tls_required": True}
    received, _ = asyncio.run(_received(info, tls=ssl.create_default_context()))
    assert received.startswith(b"\x16\x03")  # a TLS record of a handshake
    assert b"top-secret" not in received
