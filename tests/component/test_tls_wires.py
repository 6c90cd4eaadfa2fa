"""Programs whose servers (NATS, Redis, ClickHouse) accept only TLS.

They work with the servers' authority and send nothing to servers of another. For Kafka's TLS see
test_kafka_rights.py.
"""

import contextlib
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from spillway_lab.testing import servers
from spillway_lab.testing.servers import ROOT, free_port
from spillway_lab.testing.tls_files import TlsFiles, tls_files
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component
COMMANDS = {
    "publisher": ["spillway_publisher", "run"],
    "optimizer": ["spillway_optimizer", "run"],
    "papa": ["spillway_optimizer", "papa"],
}


class Front:
    """Accepts TLS at `port` and forwards the bytes in cleartext to a local server.

    It replaces a server's own TLS, because the Redis and ClickHouse that tests run are built
    without it.
    """

    def __init__(self, tls: TlsFiles, to: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(tls.certificate, tls.key)
        self._to, self.passed, self.refused = to, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            with self._context.wrap_socket(raw, server_side=True) as client:
                server = socket.create_connection(("127.0.0.1", self._to))
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server)
                back.join()
        # includes ssl.SSLError: the client did not trust the certificate, or used cleartext
        except OSError:
            self.refused += 1

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                self.passed += len(piece)
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Servers:
    """Addresses over TLS, with `tls.ca` as authority. The fronts count the forwarded bytes."""

    environment: dict[str, str]
    tls: TlsFiles
    fronts: list[Front]


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def _behind(front: Front, url: str, scheme: str) -> str:
    return url.replace(f":{_port(url)}", f":{front.port}").replace(url.partition("://")[0], scheme, 1)


@contextlib.contextmanager
def _nats(folder: Path, tls: TlsFiles) -> Iterator[str]:
    folder.mkdir()
    port, password = free_port(), f"p{secrets.token_hex(12)}"
    (folder / "nats.conf").write_text(
        f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {folder}/data }}\n"
        f"tls {{ cert_file: {tls.certificate}, key_file: {tls.key} }}\n"
        f"authorization {{ user: u, password: {password} }}\n"
    )
    server = servers.Server(
        url=f"tls://u:{password}@127.0.0.1:{port}", command=[str(servers.BIN / "nats-server"), "-c", f"{folder}/nats.conf"],
        log=folder / "server.log", ready=lambda: servers.answers(port, b"", b"INFO "),
    )  # fmt: skip
    with servers.running(server):
        yield server.url


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("tls")
    tls = tls_files(folder / "authority")
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "signing.key").write_bytes(key)
    with (
        servers.redis_server(folder) as redis,
        servers.clickhouse_server(folder, migrated=False) as clickhouse,
        _nats(folder / "nats-tls", tls) as nats,
    ):
        fronts = [Front(tls, _port(redis)), Front(tls, _port(clickhouse))]
        yield Servers(
            {
                "SPILLWAY_NATS_URL": nats,
                "SPILLWAY_REDIS_URL": _behind(fronts[0], redis, "rediss"),
                "SPILLWAY_CLICKHOUSE_URL": _behind(fronts[1], clickhouse, "clickhouses"),
                "SPILLWAY_TOPOLOGY": str(ROOT / "contracts/golden/topology.yaml"),
                "SPILLWAY_SIGNING_KEY": str(folder / "signing.key"),
                "SPILLWAY_POLICY": "local",
            },
            tls,
            fronts,
        )
        for front in fronts:
            front.close()


def _trusting(authority: Path | str) -> dict[str, str]:
    return {f"SPILLWAY_{server}_CA": str(authority) for server in ("NATS", "REDIS", "CLICKHOUSE")}


@pytest.fixture(scope="module")
def migrated(world: Servers) -> None:
    """The schema, created over TLS by the program that creates it everywhere."""
    done = _migrate(world.environment | _trusting(world.tls.ca))
    assert done.returncode == 0, done.stderr


def _migrate(environment: dict[str, str]) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        "-m",
        "spillway_clickhouse.migrate",
        "--ddl",
        str(ROOT / "contracts/clickhouse"),
    ]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=240)


def readiness(port: int) -> str:
    """Returns the text of /readyz, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError as error:
        return str(error)


@contextlib.contextmanager
def program(name: str, folder: Path, environment: dict[str, str]) -> Iterator[int]:
    """Runs the program until the block ends, and yields its health port."""
    port = free_port()
    variables = {"SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}", "SPILLWAY_STATE_DIR": str(folder)}
    server = servers.Server(
        "", [sys.executable, "-m", *COMMANDS[name]], folder / f"{name}.log",
        ready=lambda: servers.answers(port, b"GET /readyz HTTP/1.0\r\n\r\n", b"HTTP/1"), environment=environment | variables,
    )  # fmt: skip
    with servers.running(server):
        yield port


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_in_order_over_tls(world: Servers, migrated: None, tmp_path: Path, name: str):
    """With the authority of its servers a program reaches all three, and only over TLS."""
    with program(name, tmp_path, world.environment | _trusting(world.tls.ca)) as port:
        eventually(lambda: servers.healthy(port), "in order", seen=lambda: [readiness(port)])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_managed_server_is_trusted_by_the_systems_roots(
    world: Servers, migrated: None, tmp_path: Path, name: str
):
    """With `system` instead of a file a program trusts the machine's roots.

    Here these are the servers' authority.
    """
    roots = {"SSL_CERT_FILE": str(world.tls.ca), "SSL_CERT_DIR": str(tmp_path)}
    with program(name, tmp_path, world.environment | _trusting("system") | roots) as port:
        eventually(lambda: servers.healthy(port), "in order", seen=lambda: [readiness(port)])


@pytest.mark.parametrize("name", COMMANDS)
def test_servers_of_another_authority_hear_nothing(world: Servers, migrated: None, tmp_path: Path, name: str):
    """The program reports which servers it cannot reach and sends them nothing, least of all a
    password.

    It makes no difference that the machine trusts their authority, because a file is trusted
    exclusively.
    """
    before = [front.passed for front in world.fronts]
    stranger = tls_files(tmp_path / "stranger").ca
    roots = {"SSL_CERT_FILE": str(world.tls.ca)}
    with program(name, tmp_path, world.environment | _trusting(stranger) | roots) as port:
        refused = sum(front.refused for front in world.fronts)
        eventually(
            lambda: sum(front.refused for front in world.fronts) > refused + 1, "two tries that ended at once"
        )
        assert not servers.healthy(port)
    assert [front.passed for front in world.fronts] == before
    log = (tmp_path / f"{name}.log").read_text()
    assert "certificate verify failed" in log.lower()
    for url in ("SPILLWAY_NATS_URL", "SPILLWAY_REDIS_URL", "SPILLWAY_CLICKHOUSE_URL"):
        password = world.environment[url].partition("@")[0].rpartition(":")[2]
        assert password not in log + readiness(port)


@pytest.mark.parametrize("trusted", [True, False], ids=["own", "another"])
def test_what_helm_test_asks_is_asked_over_tls(world: Servers, tmp_path: Path, trusted: bool):
    """Each server answers if its authority is the trusted one, and none does otherwise."""
    authority = world.tls.ca if trusted else tls_files(tmp_path).ca
    done = subprocess.run(
        [sys.executable, "-m", "spillway_contracts.answers"],
        env=os.environ | world.environment | _trusting(authority), capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (done.stdout if trusted else done.stderr).splitlines()  # these include what clients log
    answered = {
        server
        for server in ("clickhouse", "redis", "nats")
        if any(line.startswith(f"{server}: ") for line in lines)
    }
    assert (done.returncode, answered) == (0 if trusted else 1, {"clickhouse", "redis", "nats"}), done.stderr


def test_the_schema_is_not_made_on_a_server_of_another_authority(world: Servers, tmp_path: Path):
    """Migration ends with the reason."""
    done = _migrate(world.environment | _trusting(tls_files(tmp_path).ca))
    assert done.returncode != 0 and "certificate verify failed" in done.stderr.lower(), done.stderr
