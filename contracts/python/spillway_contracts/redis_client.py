"""redis-py with the checks that all boxes need, for boxes that require redis-py."""

import ssl
from typing import Any

from redis.asyncio import Redis, SSLConnection
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError


def connect(url: str, tls: ssl.SSLContext | None = None, **options: Any) -> Redis:
    """Does what Redis.from_url does, and refuses a node of a Redis Cluster at every connection.

    `tls`: the context with trusted authorities for connections over rediss://.
    """
    made = Redis.from_url(url, redis_connect_func=_greet, **options)
    if tls is not None:
        # The class that the URL's scheme selects takes precedence over an argument.
        made.connection_pool.connection_class = _Trusting
        made.connection_pool.connection_kwargs["tls"] = tls
    return made


class _Trusting(SSLConnection):
    """A TLS connection that uses only the given context.

    When redis-py gets a file of authorities, it still trusts the system's root certificates too.
    """

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


async def _greet(connection: AbstractConnection) -> None:
    """Raises RedisError when the server is a node of a Redis Cluster.

    There, the keys of one script, transaction or MGET would be on several nodes. HELLO requires no
    permission, unlike INFO and CLUSTER INFO.
    """
    await connection.on_connect()
    await connection.send_command("HELLO")
    try:
        answer = await connection.read_response()
    except ResponseError:  # an old server, or a proxy without HELLO: its own errors will show later
        return
    # Where the protocol has no maps, the answer is a list of names and values.
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=False)
    if (b"mode", b"cluster") in ((_bytes(name), _bytes(value)) for name, value in pairs):
        raise RedisError(
            "the server of SPILLWAY_REDIS_URL is a node of a Redis Cluster (HELLO: mode cluster); must be one Redis "
            "server, or a primary with replicas behind one address: cluster mode disabled"
        )


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
