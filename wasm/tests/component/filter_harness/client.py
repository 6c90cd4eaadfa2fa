"""Requests to a proxy's listener, with nothing between the test and the wire."""

import http.client
import json
import secrets
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
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
    """A fresh trace id and span id, and the traceparent header that carries them."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, {"traceparent": f"00-{trace}-{span}-0{int(sampled)}"}
