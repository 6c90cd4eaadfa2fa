"""When clients request a token, and the errors if they get none.

The token endpoint is an HTTP server in this process.
"""

import asyncio
import base64
import http.server
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs

import pytest
from spillway_contracts import kafka_tokens
from spillway_contracts.kafka_tokens import Endpoint, TokenError, Tokens

SECRET = "top-s%cret +&=:/ü"


class Server(http.server.ThreadingHTTPServer):
    """A token endpoint.

    `asked` holds the header and form of each request. `gives` returns the status and body of an
    answer by the number of the request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.gives: Callable[[int], tuple[int, bytes]] = token(3600)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append((self.headers["Authorization"], form))
        status, body = self.server.gives(len(self.server.asked))
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def token(life_s: object) -> Callable[[int], tuple[int, bytes]]:
    """Returns the answers of an endpoint: numbered tokens with this life.

    With None, the answers do not state the life.
    """
    lifetime = {} if life_s is None else {"expires_in": life_s}
    return lambda number: (200, json.dumps({"access_token": f"token.{number}"} | lifetime).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def tokens(server: Server, **other) -> Tokens:
    """Returns the token source of a client. `other` overrides settings of its endpoint."""
    url = f"http://127.0.0.1:{server.server_port}/token"
    given = {"url": url, "client_id": "me:1", "secret": lambda: SECRET, "scope": "a b", "tls": None}
    return Tokens(Endpoint(**given | other))


def test_a_request_is_as_the_rfc_has_it(server):
    """A request uses client credentials, with id and secret encoded before they go into the header.

    It has a scope only if one is configured.
    """
    assert asyncio.run(tokens(server).token()) == "token.1"
    asyncio.run(tokens(server, scope=None).token())
    (shown, form), (_, without) = server.asked
    encoded = base64.b64decode(shown.removeprefix("Basic ")).decode()
    assert encoded == "me%3A1:top-s%25cret+%2B%26%3D%3A%2F%C3%BC"
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    assert without == {"grant_type": ["client_credentials"]}


def test_clients_of_all_loops_share_a_token_for_most_of_its_life(server, monkeypatch):
    """All clients share one token, whatever their thread and event loop, at once and later.

    After 80 % of its life, the next client requests another token.
    """
    server.gives = token(100)
    shared = tokens(server)

    async def several() -> set[str]:
        return set(await asyncio.gather(*(shared.token() for _ in range(5))))

    found: list[set[str]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(several()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"token.1"}] * 4 and len(server.asked) == 1
    now = time.monotonic()
    for later, wanted in ((79, "token.1"), (81, "token.2"), (160, "token.2"), (162, "token.3")):
        monkeypatch.setattr(kafka_tokens.time, "monotonic", lambda later=later: now + later)
        assert asyncio.run(shared.token()) == wanted, later


def test_a_token_is_shown_to_its_end_while_there_is_no_other(server, monkeypatch):
    """An unreachable endpoint ends no connection before the token expires."""
    server.gives = token(100)
    shared = tokens(server)
    asyncio.run(shared.token())
    server.gives = lambda _: (503, b"")
    now = time.monotonic()
    for later in (81, 99):
        monkeypatch.setattr(kafka_tokens.time, "monotonic", lambda later=later: now + later)
        assert asyncio.run(shared.token()) == "token.1"
    monkeypatch.setattr(kafka_tokens.time, "monotonic", lambda: now + 101)
    assert "HTTP 503" in why(shared) and len(server.asked) == 4


@pytest.mark.parametrize("life_s", [None, 0, -5, "soon", float("nan"), {}, int("9" * 400)])
def test_a_token_of_unknown_life_is_used_once(server, life_s):
    server.gives = token(life_s)
    shared = tokens(server)
    assert [asyncio.run(shared.token()) for _ in range(2)] == ["token.1", "token.2"]


def test_life_may_be_a_text(server):
    """Some endpoints send the life as text."""
    server.gives = token("3600")
    shared = tokens(server)
    assert [asyncio.run(shared.token()) for _ in range(2)] == ["token.1", "token.1"]


def why(made: Tokens) -> str:
    """Requests a token in vain. Returns the error's text, which must not contain secrets."""
    with pytest.raises(TokenError) as refused:
        asyncio.run(made.token())
    assert SECRET not in str(refused.value) and "token." not in str(refused.value)
    return refused.value.args[0]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, {"error": "invalid_client", "error_description": SECRET}, "HTTP 401, invalid_client"),
        (200, {"error": "invalid_scope"}, "HTTP 200, invalid_scope"),
        (400, {"error": SECRET}, "HTTP 400"),
        (400, {"error": ["invalid_client"]}, "HTTP 400"),
        (500, SECRET, "HTTP 500"),
        (307, {"access_token": "token.1"}, "HTTP 307"),
        (200, {}, "an answer without an access_token"),
        (200, [], "an answer without an access_token"),
        (200, {"access_token": f"a\x01{SECRET}"}, "an answer without an access_token"),
        (200, {"access_token": "a" * 100_000}, "an answer of more than 65536 bytes"),
    ],
)
def test_without_a_token_the_error_says_why_and_nothing_secret(server, status, body, expected):
    """The error names variable and host.

    Redirects are not followed, and answers have a maximum size. Of an answer, the error repeats
    only codes of RFC 6749.
    """
    server.gives = lambda _: (status, json.dumps(body).encode())
    assert why(tokens(server)) == f"SPILLWAY_KAFKA_SASL_TOKEN_URL: no token from 127.0.0.1: {expected}"
    assert len(server.asked) == 1


def test_a_deep_answer_is_no_answer(server):
    server.gives = lambda _: (200, b"[" * 60_000)
    assert "an answer without" in why(tokens(server))


def test_an_endpoint_that_is_away_is_named_without_its_url():
    made = Tokens(Endpoint(f"http://127.0.0.1:1/token?key={SECRET}", "me", lambda: SECRET, None, None))
    assert why(made).startswith("SPILLWAY_KAFKA_SASL_TOKEN_URL: no token from 127.0.0.1: [Errno 111]")


def test_a_silent_endpoint_is_given_up_and_who_waited_shares_its_failure(server, monkeypatch, caplog):
    """Clients that wait for the same request share its failure, instead of waiting in turn.

    The next client requests again. A single log line reports the failure.
    """
    monkeypatch.setattr(kafka_tokens, "_WAIT_S", 0.5)
    over = threading.Event()
    server.gives = lambda number: (over.wait(10), token(3600)(number))[1]
    shared = tokens(server)

    async def several() -> list:
        return await asyncio.gather(*(shared.token() for _ in range(4)), return_exceptions=True)

    try:
        with caplog.at_level(logging.WARNING):
            failures = asyncio.run(several())
    finally:
        over.set()
    assert all("no answer within 0.5 s" in str(failure) for failure in failures)
    assert len(server.asked) == 1 and len(caplog.records) == 1
    assert asyncio.run(shared.token()) == "token.2"


def test_the_secret_is_read_for_each_request(server):
    """An unreadable secret file is an error of the client's configuration, like a wrong
    password."""
    server.gives = token(None)
    secrets = ["first", "second"]

    def secret() -> str:
        if not secrets:
            raise ValueError("'/secret' is empty; must hold the password")
        return secrets.pop(0)

    shared = tokens(server, secret=secret)
    for wanted in ("first", "second"):
        asyncio.run(shared.token())
        shown = base64.b64decode(server.asked[-1][0].removeprefix("Basic ")).decode()
        assert shown.endswith(f":{wanted}")
    assert why(shared) == "SPILLWAY_KAFKA_SASL_PASSWORD_FILE: '/secret' is empty; must hold the password"
