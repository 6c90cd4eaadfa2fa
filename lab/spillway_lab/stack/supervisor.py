"""Client of process-compose, the supervisor of the local stack, over its unix socket."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from spillway_lab.scenario.errors import LabError


class StackError(LabError):
    """The stack did not start or stop as asked. The message names the process and its log."""


@dataclass(frozen=True)
class Process:
    name: str
    status: str
    ready: bool
    pid: int
    restarts: int
    exit_code: int
    one_shot: bool

    @property
    def settled(self) -> bool:
        """Whether the process is ready, or has ended successfully if it is a one-shot process."""
        return self.status == "Completed" and self.exit_code == 0 if self.one_shot else self.ready


class Supervisor:
    """One running process-compose with its processes."""

    def __init__(self, run: Path, files: list[Path], environment: Mapping[str, str], cwd: Path) -> None:
        self._run, self._files, self._cwd = run, files, cwd
        self._environment = dict(environment)
        self._process: subprocess.Popen | None = None
        # Socket paths are limited to about 100 bytes and run folders may be longer. /tmp keeps it
        # short.
        self._socket = Path(f"/tmp/spillway-{os.getpid()}-{abs(hash(str(run))) % 10**8}.sock")
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self._socket)), base_url="http://supervisor", timeout=20
        )

    def add(self, file: Path) -> None:
        """Adds a project file. Must be called before `start`."""
        self._files.append(file)

    def start(self, only: list[str]) -> None:
        """Starts the named processes and their dependencies, or all processes if none is named."""
        command = [
            "process-compose",
            "up",
            *only,
            "--tui=false",
            "--keep-project",
            "--disable-dotenv",
            "--ordered-shutdown",
        ]
        command += [
            "--use-uds",
            "--unix-socket",
            str(self._socket),
            "--log-file",
            str(self._run / "supervisor.log"),
        ]
        for file in self._files:
            command += ["--config", str(file)]
        log = (self._run / "supervisor.out").open("wb")
        # The supervisor gets its own session. An interrupt at the terminal then reaches only us,
        # and we stop the supervisor in order.
        self._process = subprocess.Popen(
            command, cwd=self._cwd, env=self._environment, stdout=log, stderr=log, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Process id of the running process-compose. Raises StackError when it does not run."""
        self._check_alive()
        assert self._process is not None  # or it is not alive
        return self._process.pid

    def processes(self) -> dict[str, Process]:
        try:
            rows = self._http.get("/processes").raise_for_status().json()["data"]
        except httpx.TransportError:
            self._check_alive()
            return {}
        return {
            row["name"]: Process(
                name=row["name"],
                status=row["status"],
                ready=row["is_ready"] == "Ready",
                pid=row["pid"],
                restarts=row["restarts"],
                exit_code=row["exit_code"],
                one_shot=not row["has_ready_probe"],
            )
            for row in rows
            if row["status"] != "Disabled"  # not among those that were asked for
        }

    def wait_ready(self, timeout: float, progress: Callable[[int, int, list[str]], None]) -> None:
        """Waits until every process is settled. Raises StackError after `timeout` seconds.

        Calls progress(number settled, number of all, names of the others) repeatedly. Also raises
        StackError as soon as a one-shot process fails.
        """
        deadline = time.monotonic() + timeout
        while True:
            processes = self.processes()
            waiting = sorted(p.name for p in processes.values() if not p.settled)
            progress(len(processes) - len(waiting), len(processes), waiting)
            if processes and not waiting:
                return
            failed = [p for p in processes.values() if p.one_shot and p.status in ("Error", "Skipped")]
            if failed or time.monotonic() > deadline:
                names = [p.name for p in failed] or waiting
                raise StackError(
                    f"not ready within {timeout:.0f} s: {', '.join(names)}\n{self._tails(names)}"
                )
            time.sleep(0.5)

    def kill(self, name: str) -> None:
        """Kills the process with SIGKILL, like a crash.

        The supervisor restarts it after its backoff.
        """
        os.kill(self.processes()[name].pid, signal.SIGKILL)

    def stop_process(self, name: str) -> None:
        self._http.patch(f"/process/stop/{name}").raise_for_status()

    def start_process(self, name: str) -> None:
        self._http.post(f"/process/start/{name}").raise_for_status()

    def restart_process(self, name: str) -> None:
        """Stops the process in an orderly way. The supervisor starts it again after its backoff."""
        self._http.post(f"/process/restart/{name}").raise_for_status()

    def stop(self) -> None:
        """Stops all processes in order. Kills those that are left after a minute."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None
        self._socket.unlink(missing_ok=True)

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise StackError(f"the supervisor has ended:\n{_tail(self._run / 'supervisor.out')}")

    def _tails(self, names: list[str]) -> str:
        return "\n".join(f"-- {name}\n{_tail(self._run / 'log' / f'{name}.log')}" for name in names[:3])


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return f"(no {path})"
