"""Sends requests to a proxy's listener through Python's plain HTTP client."""

import http.client
import json
import secrets
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """A response, and the request as the application received it."""

    status: int
    headers: dict[str, str]
    seen: dict[str, str]
    """Request headers as the application received them; empty where it did not answer in JSON."""


def get(
    port: int,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Sends one request, a POST where there is a body, and returns its answer."""
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"host": "cart", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    received = {name.lower(): value for name, value in response.getheaders()}
    try:
        seen = json.loads(text)["headers"]
    except (ValueError, KeyError):
        seen = {}
    return Answer(response.status, received, seen)


def traced(sampled: bool = True) -> tuple[str, str, dict[str, str]]:
    """Returns a fresh trace id, a fresh span id, and the traceparent header that carries them."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, {"traceparent": f"00-{trace}-{span}-0{int(sampled)}"}
