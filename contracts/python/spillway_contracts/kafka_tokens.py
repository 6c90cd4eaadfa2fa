"""Access tokens with which an aiokafka client authenticates by OAUTHBEARER.

They come from OAuth 2, client credentials (RFC 6749, 4.4). For boxes that require aiokafka and
aiohttp.
"""

import asyncio
import base64
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlsplit

import aiohttp
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError

log = logging.getLogger("spillway.kafka_tokens")
_WAIT_S = 10.0  # until the whole answer is there
_MOST_BYTES = 64 << 10
# Share of its life for which a token is used, as in Kafka's own clients
# (sasl.login.refresh.window.factor).
_USED_SHARE = 0.8
_LONGEST_S = 86_400.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
# RFC 6749, 5.2. Other words of an answer are not repeated, because they may be anything.
_REASONS = (
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
    "invalid_scope",
)  # fmt: skip


class TokenError(AuthenticationFailedError):  # type: ignore[misc]  # aiokafka has no types
    """No token could be obtained. The text contains neither the secret nor a token."""


@dataclass(frozen=True)
class Endpoint:
    """A token endpoint and the client's credentials.

    `secret` is called before each request and raises ValueError. `tls` is None for http://.
    """

    url: str
    client_id: str
    secret: Callable[[], str]
    scope: str | None
    tls: ssl.SSLContext | None


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Keeps a token for most of its life, and until its end while no newer one can be obtained.

    A token without a stated lifetime is used once. Clients on several event loops and threads may
    share one instance: one of them requests a token, and the others wait for the answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._asking = threading.Lock()
        self._held, self._held_until, self._held_to_end = "", 0.0, 0.0
        self._failure, self._failed_at = "", 0.0

    async def token(self) -> str:
        """Returns a valid token. Raises TokenError."""
        return await asyncio.to_thread(self._current, time.monotonic())

    def _current(self, wanted_at: float) -> str:
        with self._asking:
            began_at = time.monotonic()
            if began_at < self._held_until:
                return self._held
            if wanted_at < self._failed_at:  # this caller was waiting for the request that failed
                return self._still_held(self._failure)
            try:
                self._held, life_s = _run(_ask(self._endpoint))
            except TokenError as error:
                self._failed_at = time.monotonic()
                if self._failure != error.args[0]:  # logged once, however often clients try
                    self._failure = error.args[0]
                    log.warning("%s", self._failure)
                return self._still_held(self._failure)
            self._failure, self._failed_at = "", 0.0
            self._held_until, self._held_to_end = began_at + life_s * _USED_SHARE, began_at + life_s
            return self._held

    def _still_held(self, why_no_other: str) -> str:
        if time.monotonic() < self._held_to_end:
            return self._held
        raise TokenError(why_no_other)


def _run(work: Coroutine[Any, Any, tuple[str, float]]) -> tuple[str, float]:
    """Runs a coroutine on a new event loop.

    asyncio.run is not used. At its end it waits for a pending name lookup, even long after the
    timeout.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def _ask(endpoint: Endpoint) -> tuple[str, float]:
    """Requests a new token.

    Returns it with its lifetime in seconds (0: unknown). Raises TokenError.
    """
    try:
        secret = endpoint.secret()
    except ValueError as error:
        raise TokenError(f"SPILLWAY_KAFKA_SASL_PASSWORD_FILE: {error}") from None
    try:
        return _read(*await _post(endpoint, secret))
    except TimeoutError:
        why = f"no answer within {_WAIT_S:g} s"
    except aiohttp.ClientConnectorError as error:
        why = str(error.os_error)
    except (aiohttp.ClientError, OSError) as error:
        why = type(error).__name__  # its text may quote the answer
    except _UnusableError as error:
        why = str(error)
    host = urlsplit(endpoint.url).hostname
    raise TokenError(f"SPILLWAY_KAFKA_SASL_TOKEN_URL: no token from {host}: {why}") from None


class _UnusableError(Exception):
    pass


async def _post(endpoint: Endpoint, secret: str) -> tuple[int, bytes]:
    """Sends the token request and returns the status and body of the answer."""
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    user = f"{quote_plus(endpoint.client_id)}:{quote_plus(secret)}"  # RFC 6749, 2.3.1
    headers = {
        "Authorization": "Basic " + base64.b64encode(user.encode()).decode(),
        "Accept": "application/json",
        "Accept-Encoding": "identity",
    }
    async with (
        aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_WAIT_S),
            auto_decompress=False,
        ) as session,
        session.post(
            endpoint.url,
            data=form,
            headers=headers,
            allow_redirects=False,
            ssl=endpoint.tls or True,
        ) as answer,
    ):
        try:
            await answer.content.readexactly(_MOST_BYTES + 1)
        except asyncio.IncompleteReadError as whole:
            return answer.status, whole.partial
        raise _UnusableError(f"an answer of more than {_MOST_BYTES} bytes")


def _read(status: int, body: bytes) -> tuple[str, float]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    if not 200 <= status < 300 or "error" in answer:
        reason = answer.get("error")
        raise _UnusableError(f"HTTP {status}" + (f", {reason}" if reason in _REASONS else ""))
    token = answer.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise _UnusableError("an answer without an access_token")
    try:
        life_s = float(answer.get("expires_in", 0))
    except (TypeError, ValueError, OverflowError):
        life_s = 0.0
    return token, max(0.0, min(life_s, _LONGEST_S))
