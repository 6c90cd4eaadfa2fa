"""Real servers for tests, each with its own ports, secrets and folders.

They stop when the `with` block ends:

    with nats_server(tmp_path) as url: ...          # nats://user:pass@127.0.0.1:port, JetStream on
    with redis_server(tmp_path) as url: ...         # redis://:pass@127.0.0.1:port/0, no persistence
    with clickhouse_server(tmp_path) as url: ...    # clickhouse://user:pass@127.0.0.1:port/spillway

The ClickHouse is migrated. Tests that stop, kill and restart a server use `nats_process`,
`redis_process` and `clickhouse_process` instead. They yield a `Server`, which keeps its port,
secret and data folder across restarts.
"""

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spillway_lab.testing.waiting import STOP_S

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
# These ports are below the ephemeral range, in which any client socket could take a port before the
# server does. They are also below the local stack's bases.
_PORTS = range(10_240, 20_000)
_given: set[int] = set()


def _own_ports() -> range:
    """Ports reserved for this process.

    Tests that run in parallel (pytest-xdist) could otherwise get the same port before either of
    them listens.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return _PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


def free_port() -> int:
    """Returns a free TCP port of 127.0.0.1 that this process has not been given before."""
    ports = _own_ports()
    for port in random.sample(ports, len(ports)):
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
    raise RuntimeError(f"no free port of {ports} is left")


@dataclass
class Server:
    """One server process. `url` stays the same across `stop` or `kill` and `start`.

    `start` raises RuntimeError with the end of the process's log when the server does not become
    ready.
    """

    url: str
    command: list[str]
    log: Path
    ready: Callable[[], bool]
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 150.0  # a JVM beside busy tests takes more than a minute
    process: subprocess.Popen | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | self.environment,
            )
        deadline = time.monotonic() + self.timeout_s
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(
                    f"{self.command[:4]} did not become ready:\n{self.log.read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def kill(self) -> None:
        """Sends SIGKILL, like a machine that loses power."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL after STOP_S."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Starts the server and stops it when the block ends."""
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def url_of(process: contextlib.AbstractContextManager[Server]) -> Iterator[str]:
    """Yields the server's URL, for tests that need only the address."""
    with process as server:
        yield server.url


def nats_process(tmp_path: Path) -> contextlib.AbstractContextManager[Server]:
    """Runs NATS with JetStream in tmp_path/nats."""
    folder, port = _folder(tmp_path, "nats"), free_port()
    user, password = _secret("u"), _secret("p")
    config = _private(
        folder / "nats.conf",
        f"listen: 127.0.0.1:{port}\n"
        # Every write is flushed, so that a SIGKILL loses nothing that was acknowledged.
        f'jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}\n'
        f'authorization {{ user: "{user}", password: "{password}" }}\n',
    )
    return running(
        Server(
            url=f"nats://{user}:{password}@127.0.0.1:{port}",
            command=[str(BIN / "nats-server"), "-c", str(config)],
            log=folder / "server.log",
            ready=lambda: answers(port, b"", b"INFO "),
        )
    )


def redis_process(tmp_path: Path) -> contextlib.AbstractContextManager[Server]:
    """Runs Redis without persistence. A restart loses all data."""
    folder, port, password = _folder(tmp_path, "redis"), free_port(), _secret("p")
    config = _private(
        folder / "redis.conf",
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\ndir {folder}\n',
    )
    return running(
        Server(
            url=f"redis://:{password}@127.0.0.1:{port}/0",
            command=[str(BIN / "redis-server"), str(config)],
            log=folder / "server.log",
            ready=lambda: answers(port, f"AUTH {password}\r\nPING\r\n".encode(), b"+PONG"),
        )
    )


def clickhouse_process(tmp_path: Path, migrated: bool = True) -> contextlib.AbstractContextManager[Server]:
    """Runs the local ClickHouse front, if `migrated` with the tables of contracts/clickhouse."""
    folder, port, health = _folder(tmp_path, "clickhouse"), free_port(), free_port()
    user, password = _secret("u"), _secret("p")
    server = Server(
        url=f"clickhouse://{user}:{password}@127.0.0.1:{port}/spillway",
        command=[sys.executable, "-m", "spillway_clickhouse.server"],
        environment={
            "SPILLWAY_CLICKHOUSE_LISTEN": f"127.0.0.1:{port}",
            "SPILLWAY_CLICKHOUSE_USER": user,
            "SPILLWAY_CLICKHOUSE_PASSWORD": password,
            "SPILLWAY_STATE_DIR": str(_folder(folder, "state")),
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{health}",
        },
        log=folder / "server.log",
        ready=lambda: healthy(health),
    )
    return _migrated(server) if migrated else running(server)


@contextlib.contextmanager
def _migrated(server: Server) -> Iterator[Server]:
    with running(server):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "spillway_clickhouse.migrate",
                "--ddl",
                str(ROOT / "contracts" / "clickhouse"),
            ],
            env=os.environ | {"SPILLWAY_CLICKHOUSE_URL": server.url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"migrate ended with {done.returncode}:\n{done.stderr[-2000:]}")
        yield server


def nats_server(tmp_path: Path) -> contextlib.AbstractContextManager[str]:
    """Yields the URL of a running NATS server with JetStream."""
    return url_of(nats_process(tmp_path))


def redis_server(tmp_path: Path) -> contextlib.AbstractContextManager[str]:
    """Yields the URL of a running Redis server."""
    return url_of(redis_process(tmp_path))


def clickhouse_server(tmp_path: Path, migrated: bool = True) -> contextlib.AbstractContextManager[str]:
    """Yields the URL of a running ClickHouse, if `migrated` with the contracts' tables."""
    return url_of(clickhouse_process(tmp_path, migrated))


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _secret(prefix: str) -> str:
    # The secret starts with a letter, because NATS's configuration reads a leading digit as a
    # number.
    return prefix + secrets.token_hex(12)


def _private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def answers(port: int, question: bytes, expected: bytes) -> bool:
    """Whether the server's greeting or its answer to `question` contains the expected bytes."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(question)
            while expected not in answer:
                piece = connection.recv(4096)
                if not piece:
                    return False
                answer += piece
    except OSError:
        return False
    return True


def healthy(port: int) -> bool:
    """Whether /readyz at this port of 127.0.0.1 answers 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
