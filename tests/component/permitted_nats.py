"""A real NATS server with the rendered configuration and its users."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from spillway_contracts import names
from spillway_lab.render import bus, files, templates
from spillway_lab.testing import servers

INBOXES = {
    "optimizer": names.NATS_INBOX_OPTIMIZER,
    "papa": names.NATS_INBOX_PAPA,
    "publisher": names.NATS_INBOX_PUBLISHER,
    "operator": names.NATS_INBOX_OPERATOR,
}


class Bus:
    """The running server and the passwords of its users."""

    def __init__(self, address: str, passwords: dict[str, str]) -> None:
        self._address, self._passwords = address, passwords

    def url(self, user: str) -> str:
        """Returns the URL that a program gets, with the user's password."""
        return self._address.replace("//", f"//{user}:{self._passwords[user]}@")

    @asynccontextmanager
    async def user(
        self, name: str, password_of: str | None = None, inbox: str = ""
    ) -> AsyncIterator[tuple[Client, list[str]]]:
        """Yields a connection and the list of errors that the server has sent on it.

        Users subscribe to their own inbox.
        """
        errors: list[str] = []

        async def noted(error: Exception) -> None:
            errors.append(str(error).lower())

        client = await nats.connect(
            self._address,
            user=name,
            password=self._passwords.get(password_of or name, ""),
            inbox_prefix=inbox
            or INBOXES.get(name, names.NATS_INBOX_RELAY.format(cluster=name.removeprefix("relay-"))),
            allow_reconnect=False,
            error_cb=noted,
        )
        try:
            yield client, errors
        finally:
            await client.close()


@contextmanager
def running(folder: Path, clusters: list[str]) -> Iterator[Bus]:
    """Runs an empty server with one user per role and one for the relays of each cluster."""
    port = servers.free_port()
    files.write(folder, bus.configuration(clusters, templates.read(servers.ROOT / "infra")))
    passwords = {user: f"s{secrets.token_hex(16)}" for user in bus.users(clusters)}
    process = servers.Server(
        url=f"nats://127.0.0.1:{port}",
        command=[str(servers.BIN / "nats-server"), "-c", str(folder / "nats/nats.conf")],
        environment={bus.password_variable(user): password for user, password in passwords.items()}
        | {
            "NATS_LISTEN": f"127.0.0.1:{port}",
            "NATS_MONITOR_LISTEN": f"127.0.0.1:{servers.free_port()}",
            "NATS_DATA_DIR": str(folder / "data"),
        },
        log=folder / "server.log",
        ready=lambda: servers.answers(port, b"", b"INFO "),
    )
    with servers.running(process):
        yield Bus(process.url, passwords)
