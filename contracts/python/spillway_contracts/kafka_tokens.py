"""Access tokens with which a client of aiokafka signs in by OAUTHBEARER: OAuth 2, client credentials (RFC 6749, 4.4).

For the boxes that have aiokafka and aiohttp among their requirements.
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
_WAIT_S = 10.0  # for the whole answer
_MOST_BYTES = 64 << 10
_USED_SHARE = 0.8  # of a token's life, as Kafka's own clients (sasl.login.refresh.window.factor)
_LONGEST_S = 86_400.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
# RFC 6749, 5.2. Other words of an answer are not repeated: they may be anything.
_REASONS = (
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
    "invalid_scope",
)  # fmt: skip


class TokenError(AuthenticationFailedError):
    """There is no token. The text holds neither the secret nor a token."""


@dataclass(frozen=True)
class Endpoint:
    """`secret` is called before each request and raises ValueError; `tls` is None for http://."""

    url: str
    client_id: str
    secret: Callable[[], str]
    scope: str | None
    tls: ssl.SSLContext | None


class Tokens(AbstractTokenProvider):
    """Keeps a token for most of its life, and to its end while there is no other. One that does not say how long it lives
    is used once.

    May be shared by clients on several event loops and threads: one of them asks, and the others wait for its answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._asking = threading.Lock()
        self._held, self._held_until, self._held_to_end = "", 0.0, 0.0
        self._failure, self._failed_at = "", 0.0

    async def token(self) -> str:
        """Raises TokenError."""
        return await asyncio.to_thread(self._current, time.monotonic())

    def _current(self, wanted_at: float) -> str:
        with self._asking:
            began_at = time.monotonic()
            if began_at < self._held_until:
                return self._held
            if wanted_at < self._failed_at:  # this caller waited for the request that failed
                return self._still_held(self._failure)
            try:
                self._held, life_s = _run(_ask(self._endpoint))
            except TokenError as error:
                self._failed_at = time.monotonic()
                if self._failure != error.args[0]:  # said once, however often clients try
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
    """Not by asyncio.run: at its end that waits for a name to be looked up, however long, when the time is long over."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def _ask(endpoint: Endpoint) -> tuple[str, float]:
    """A new token, and how many seconds it lives; 0: unknown. Raises TokenError."""
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
    """Status and body of the answer."""
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
