"""redis-py with the checks that all boxes want, for the boxes that have redis-py among their requirements."""

import ssl
from typing import Any

from redis.asyncio import Redis, SSLConnection
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError


def connect(url: str, tls: ssl.SSLContext | None = None, **options: Any) -> Redis:
    """As Redis.from_url. `tls`: trusted authorities, of connections over rediss://. A node of a Redis Cluster is refused,
    at every connection."""
    made = Redis.from_url(url, redis_connect_func=_greet, **options)
    if tls is not None:
        # The class that the URL's scheme chooses goes before one that is given beside the URL.
        made.connection_pool.connection_class = _Trusting
        made.connection_pool.connection_kwargs["tls"] = tls
    return made


class _Trusting(SSLConnection):
    """redis-py trusts the system's root certificates beside a file of authorities that it is given. Here the context that
    is given says all of it."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


async def _greet(connection: AbstractConnection) -> None:
    """Raises RedisError for a node of a Redis Cluster: keys of one script or transaction, and of one MGET, would lie on
    several nodes. HELLO needs no right, unlike INFO and CLUSTER INFO."""
    await connection.on_connect()
    await connection.send_command("HELLO")
    try:
        answer = await connection.read_response()
    except ResponseError:  # an old server, or a proxy that does not know it: its own errors will tell
        return
    # A list of names and values where the protocol has no maps.
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=False)
    if (b"mode", b"cluster") in ((_bytes(name), _bytes(value)) for name, value in pairs):
        raise RedisError(
            "the server of SPILLWAY_REDIS_URL is a node of a Redis Cluster (HELLO: mode cluster); must be one Redis "
            "server, or a primary with replicas behind one address: cluster mode disabled"
        )


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
