"""An OAuth 2 token server for tests: client credentials over HTTPS, and JWTs (RS256) for brokers.

It runs as long as the `with` block:

    with token_server(tmp_path, tls, {"west": "secret"}, life_s=6) as tokens:
        tokens.url          # the token endpoint
        tokens.jwks         # a file with the key that the JWTs are signed with
        tokens.given        # client ids, one for each token
"""

import base64
import contextlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from spillway_lab.testing.tls_files import TlsFiles

ISSUER, AUDIENCE, SCOPE = "https://tokens.test", "kafka", "kafka produce"
_KEY_ID = "test"


@dataclass
class TokenServer:
    """State of the token server.

    `clients` holds secrets by client id and may be changed. `life_s` is the lifetime of the next
    tokens.
    """

    url: str
    jwks: Path
    clients: dict[str, str]
    life_s: int
    given: list[str] = field(default_factory=list)
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def write_jwks(self) -> None:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Returns the status and body for a request, as RFC 6749 defines them."""
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if form.get("scope") != [SCOPE]:
            return 400, {"error": "invalid_scope"}
        scheme, _, encoded = authorization.partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        client = unquote_plus(client)
        wanted = self.clients.get(client)
        if scheme != "Basic" or wanted is None or unquote_plus(secret) != wanted:
            return 401, {"error": "invalid_client"}
        self.given.append(client)
        return 200, {"access_token": self._sign(client), "token_type": "Bearer", "expires_in": self.life_s}

    def _sign(self, subject: str) -> str:
        now = int(time.time())
        claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.life_s}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}, claims | {"jti": secrets.token_hex(8)})
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@contextlib.contextmanager
def token_server(folder: Path, tls: TlsFiles, clients: dict[str, str], life_s: int) -> Iterator[TokenServer]:
    folder.mkdir(parents=True, exist_ok=True)
    made = TokenServer("", folder / "jwks.json", clients, life_s)
    made.write_jwks()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = made.answer(self.headers.get("Authorization", ""), form)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    made.url = f"https://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
