"""Load that goes on, with the real generator: rates change, and rounds are cut out."""

import subprocess
import tempfile
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from spillway_lab.load.samples import between
from spillway_lab.load.stream import Options, stream
from spillway_lab.scenario.errors import LoadError
from spillway_lab.scenario.loads import Segment
from spillway_lab.testing.servers import ROOT
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


@cache
def generator() -> str:
    """Returns the path of a fresh build. Tests check the source, not an installed program."""
    target = Path(tempfile.mkdtemp(prefix="generator-")) / "spillway-load"
    subprocess.run(["go", "build", "-o", str(target), "."], cwd=ROOT / "lab" / "generator", check=True)
    return str(target)


class _Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        self.send_response(503 if self.path == "/bad" else 200)
        self.send_header("Content-Length", "0")
        self.send_header("X-Lab-Path", "gateway@west")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Counting)
    found.seen = []
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def line(server: ThreadingHTTPServer, path: str) -> str:
    return f'{{"method": "GET", "url": "http://127.0.0.1:{server.server_port}{path}"}}'


def test_rates_change_while_load_goes_on(server, tmp_path: Path) -> None:
    """Nothing is sent before a schedule or without one, and every answer is a sample."""
    options = Options(tmp_path, program=generator())
    lines = {"west": [line(server, "/good"), line(server, "/bad")], "east": [line(server, "/east")]}
    with stream(lines, {"west": 200, "east": 200}, options) as running:
        assert server.seen == []
        began = running.steady({"west": 200})
        eventually(lambda: len(server.seen) > 20, "west sends")
        assert "/east" not in server.seen
        changed = running.follow({"east": [Segment(0.5, 0, 200), Segment(1, 200, 200)]})
        eventually(lambda: server.seen.count("/east") > 20, "east sends")
        running.check()
        found = running.end(lambda _, url: int(url.endswith("/bad")))
    assert sum(map(len, found.values())) == len(server.seen)
    west, east = found["west"], found["east"]
    assert len(between(west, began, changed)) > 20
    assert len(between(east, 0, changed)) == 0
    assert west.ok.tolist() == (west.kind == 0).tolist()
    assert set(west.code.tolist()) == {200, 503}


def test_a_generator_that_cannot_work_is_an_error(server, tmp_path: Path) -> None:
    """Wrong targets, and a program that is missing, are named. Nothing is left running."""
    options = Options(tmp_path, program=generator())
    with pytest.raises(LoadError, match=r"the generator of west has ended: generator: -targets: "):
        with stream({"west": ["no target"]}, {"west": 1}, options):
            pass
    with pytest.raises(LoadError, match="none: cannot be started"):
        with stream({"west": [line(server, "/")]}, {"west": 1}, Options(tmp_path, program="none")):
            pass


def test_a_generator_that_ends_slowly_is_an_error_as_well(server, tmp_path: Path) -> None:
    """A generator whose output has ended, and whose process has not yet, did not start."""
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nexec >&-\nsleep 0.3\necho too slow >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(LoadError, match="the generator of west has ended: too slow"):
        with stream({"west": [line(server, "/")]}, {"west": 1}, Options(tmp_path, program=str(program))):
            pass
