"""nats-py that never falls back from TLS, for boxes that require nats-py."""

from typing import Any

from nats.aio.client import Client
from nats.errors import Error


async def connect(url: str, **options: Any) -> Client:
    """Does what nats.connect does.

    With `tls` given, nothing is sent to a server that does not require TLS.
    """
    client = _Client()
    await client.connect(url, **options)
    return client


class _Client(Client):
    """Refuses servers that do not require TLS when it was configured.

    nats-py uses TLS when the server's first line requires it. That line is plain text: a
    man-in-the-middle could remove the requirement, and would receive user and password.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.options.get("tls") is not None and not info.get("tls_required"):
            raise Error(
                "nats: the server does not require TLS; it must, as TLS is configured here; nothing was sent"
            )
        await super()._process_info(info, initial_connection)
