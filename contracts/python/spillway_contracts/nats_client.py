"""nats-py that never falls back from TLS, for the boxes that have nats-py among their requirements."""

from typing import Any

from nats.aio.client import Client
from nats.errors import Error


async def connect(url: str, **options: Any) -> Client:
    """As nats.connect. With `tls` given, a server that does not ask for TLS is told nothing."""
    client = _Client()
    await client.connect(url, **options)
    return client


class _Client(Client):
    """nats-py speaks TLS when the server's first line asks for it. That line comes in clear: whoever stands between
    could leave the question out, and would be sent user and password."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.options.get("tls") is not None and not info.get("tls_required"):
            raise Error("nats: the server does not ask for TLS, which is wanted; nothing was sent")
        await super()._process_info(info, initial_connection)
