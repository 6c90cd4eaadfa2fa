"""A real Redis with every user of infra/redis/users.acl, run by the stack's own starter."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spillway_lab.testing import servers

USERS = ("streams", "optimizer", "papa", "publisher")
RUN = [str(servers.ROOT / "infra" / "redis" / "run")]


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Yields a URL for each user, and one for the administrator (`default`)."""
    port, passwords = servers.free_port(), {user: secrets.token_hex(12) for user in ("default", *USERS)}
    environment = {f"REDIS_{user.upper()}_PASSWORD": passwords[user] for user in USERS}
    environment |= {
        "REDIS_BIND": "127.0.0.1",
        "REDIS_PORT": str(port),
        "REDIS_PASSWORD": passwords["default"],
    }
    server = servers.Server(
        "", RUN, folder / "server.log", lambda: servers.answers(port, b"PING\r\n", b"-NOAUTH"), environment
    )
    with servers.running(server):
        yield {user: f"redis://{user}:{password}@127.0.0.1:{port}/0" for user, password in passwords.items()}
