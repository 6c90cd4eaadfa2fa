"""The WAN through a real Toxiproxy: delays, bytes, and a restart that loses all settings."""

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import httpx
import lab_processes as lab
import pytest
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack.wan import Wan, WanLink
from spillway_lab.testing.servers import ROOT, answers, free_port
from spillway_lab.testing.waiting import STOP_S, eventually

pytestmark = pytest.mark.component

BODY = b"x" * 50_000


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def link():
    """A link of 60 ms to a server of the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield WanLink(
        name="a-to-b",
        listen=f"127.0.0.1:{free_port()}",
        upstream=f"127.0.0.1:{server.server_port}",
        source_cluster="a",
        destination_cluster="b",
        rtt_ms=60,
    )
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def toxiproxy(port: int):
    program = ROOT / ".spillway" / "bin" / "toxiproxy-server"
    command = [str(program), "-host", "127.0.0.1", "-port", str(port), "-proxy-metrics"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(port, b"GET /version HTTP/1.0\r\n\r\n", b"200 OK"), "Toxiproxy answers")
        yield process
    finally:
        process.kill()
        process.wait()


def round_trip_ms(link: WanLink) -> float:
    """Returns the shortest of five requests in ms, because pauses of the machine can delay some.

    The connection is already open, because TCP's own handshake is not delayed.
    """
    with httpx.Client(base_url=f"http://{link.listen}") as client:
        client.get("/")
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            client.get("/")
            taken.append((time.perf_counter() - began) * 1000)
        return min(taken)


def test_delay(link: WanLink) -> None:
    """A request takes longer by one round-trip time. Applying the plan twice changes nothing."""
    port = free_port()
    with toxiproxy(port):
        wan = Wan(f"127.0.0.1:{port}", [link])
        assert wan.apply() == 3
        assert wan.apply() == 0
        assert 60 <= round_trip_ms(link) < 120


def test_a_lost_cluster_cannot_be_reached_until_it_is_back(link: WanLink) -> None:
    """A closed link refuses connections. An open one has its delay, or none if it is 0."""
    port = free_port()
    with toxiproxy(port):
        wan = Wan(f"127.0.0.1:{port}", [link])
        wan.apply()
        wan.plan([link.model_copy(update={"enabled": False})])
        assert wan.apply() == 1
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{link.listen}", trust_env=False)
        wan.plan([link])
        assert wan.apply() == 1
        assert 60 <= round_trip_ms(link) < 120
        wan.plan([link.model_copy(update={"rtt_ms": 0})])
        assert wan.apply() == 2
        assert wan.apply() == 0
        assert round_trip_ms(link) < 60


def test_keeper_puts_delays_back_after_a_restart(link: WanLink, tmp_path: Path) -> None:
    """The keeper is unhealthy while Toxiproxy is away, and applies the plan when it appears.

    It applies the plan again to a new Toxiproxy that has no settings. SIGTERM ends the keeper.
    """
    plan, port, health = tmp_path / "wan.json", free_port(), f"127.0.0.1:{free_port()}"
    plan.write_text(json.dumps([link.model_dump()]))
    command = [
        sys.executable,
        "-m",
        "spillway_lab",
        "wan",
        "--plan",
        str(plan),
        "--toxiproxy",
        f"127.0.0.1:{port}",
    ]
    with (tmp_path / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(command, stderr=log, env={"SPILLWAY_HEALTH_LISTEN": health})
    try:
        wait_status(health, 503)
        with lab.hanging_up(port) as attempts:
            eventually(lambda: len(attempts) >= 3, "the keeper tries again")
        for _ in range(2):
            with toxiproxy(port):
                wait_status(health, 200)
                assert round_trip_ms(link) >= 60
            wait_status(health, 503)
        keeper.terminate()
        assert keeper.wait(STOP_S) == 0
    finally:
        keeper.kill()
        keeper.wait()
    states = re.findall("delays (not in force|in force)", (tmp_path / "keeper.log").read_text())
    # The keeper logs one line per change of state: away, back, away, back, away. There are more
    # when the machine is too slow to answer.
    assert len(states) >= 5
    assert all(first != second for first, second in pairwise(["in force", *states])), states


def wait_status(health: str, status: int) -> None:
    def answered() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{health}/readyz").status_code == status
        return False

    eventually(answered, f"{status} from the keeper")


def test_absent_toxiproxy_is_an_error_that_says_so(link: WanLink) -> None:
    """The call does not hang when no Toxiproxy answers."""
    wan = Wan(f"127.0.0.1:{free_port()}", [link])
    with pytest.raises(LabError, match="toxiproxy at http://127.0.0.1:"):
        wan.apply()
