"""Real emulators for tests. They are built once, use free ports, and stop with the `with` block."""

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
from spillway_lab.testing.servers import ROOT, free_port
from spillway_lab.testing.waiting import STOP_S, eventually

LOCAL_BIN = ROOT / ".spillway" / "bin"


@cache
def emulator() -> str:
    """Returns the path of a fresh build. Tests check the source, not an installed program."""
    target = Path(tempfile.mkdtemp(prefix="emulator-")) / "emulator"
    subprocess.run(["go", "build", "-o", str(target), "."], cwd=ROOT / "lab" / "emulator", check=True)
    return str(target)


def program(name: str) -> str:
    """Returns the path of a program that `make setup` installs."""
    path = LOCAL_BIN / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: not there; run `make setup`")
    return str(path)


@dataclass(frozen=True)
class RunningPod:
    address: str
    health: str
    process: subprocess.Popen

    def counts(self) -> dict[str, int]:
        """Returns the pod's request counters, by outcome."""
        return httpx.get(f"http://{self.health}/counts").json()


def environment(
    application: Path, cluster: str, service: str, outbound: str, collector: str = ""
) -> dict[str, str]:
    return {
        "SPILLWAY_CLUSTER": cluster,
        "SPILLWAY_SERVICE": service,
        "SPILLWAY_POD": f"{cluster}-{service}-0",
        "SPILLWAY_OUTBOUND": outbound,
        "SPILLWAY_COLLECTOR": collector or f"127.0.0.1:{free_port()}",
        "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{free_port()}",
        "LAB_APPLICATION": str(application),
        "LAB_LISTEN": f"127.0.0.1:{free_port()}",
    }


@contextlib.contextmanager
def pod(env: dict[str, str], log: Path) -> Iterator[RunningPod]:
    """Runs one emulator until it is ready, and stops it by SIGTERM, which it must obey."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [emulator()], env=os.environ | env, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        wait_healthy(env["SPILLWAY_HEALTH_LISTEN"], process, log)
        yield RunningPod(env["LAB_LISTEN"], env["SPILLWAY_HEALTH_LISTEN"], process)
        process.terminate()
        assert process.wait(STOP_S) == 0
    finally:
        process.kill()
        process.wait()


def wait_healthy(address: str, process: subprocess.Popen, log: Path) -> None:
    def healthy() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{address}/readyz").status_code == 200
        return False

    eventually(healthy, "healthy", seen=log.read_text)


@contextlib.contextmanager
def hanging_up(port: int) -> Iterator[list]:
    """Runs a server that closes every connection at once. Yields the list of closed connections."""
    ended: list = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, peer = listener.accept()
                connection.close()
                ended.append(peer)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield ended
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
