"""A worker process as the leader sees it. worker_main.py is the other end."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Pipe

from spillway_optimizer.process.children import environment

MAIN = (sys.executable, "-m", "spillway_optimizer.workers.worker_main")
READY = b"ready"
NUMBER_BYTES = 8  # at the beginning of a job, and of its answer: the job's number
OUT_OF_MEMORY = 12  # exit code of a worker that has too little memory to receive a job
_ENDS_S = 1.0  # time between the end of a connection and that of its process


class WorkerError(Exception):
    """A worker ended before it answered. The message says how.

    `killed`: whether the leader ended it, because it took too long. `out_of_memory`: whether it had
    too little memory to receive the job.
    """

    killed = out_of_memory = False


class Worker:
    """One worker process and the connection to it.

    It ends when the leader's end of the connection is closed, also if the leader is killed.
    """

    def __init__(self, most_bytes: int, command: Sequence[str] = MAIN):
        """Starts the process, with this much memory for its data. Raises OSError."""
        self._connection, theirs = Pipe()
        self._ready = self._killed = False
        self._asked = 0
        try:
            # In a session of its own. Signals to the leader's group would otherwise end a solve
            # that the leader still waits for.
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(most_bytes)],
                pass_fds=[theirs.fileno()],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ready(self, wait_s: float = 0.0) -> bool:
        """Returns whether the process has loaded its modules, and waits for that for so long."""
        if not self._ready:
            try:
                self._ready = self._connection.poll(wait_s) and self._connection.recv_bytes() == READY
            except (EOFError, OSError):  # it has ended
                return False
        return self._ready and self.alive

    def ask(self, job: bytes, seconds: float) -> bytes:
        """Returns the answer to a job. Kills the process after `seconds`. Raises WorkerError.

        An answer to anything else ends the worker: what follows would be late by one job.
        """
        self._asked += 1
        number = self._asked.to_bytes(NUMBER_BYTES)
        timer = threading.Timer(seconds, self._kill)
        timer.daemon = True
        timer.start()
        try:
            self._connection.send_bytes(number + job)
            answer = self._connection.recv_bytes()
        except (EOFError, OSError):
            error = WorkerError(self._ending(seconds))
            error.killed = self._killed
            error.out_of_memory = self._process.returncode == OUT_OF_MEMORY
            raise error from None
        finally:
            timer.cancel()
        if answer[:NUMBER_BYTES] != number:
            self.close()
            raise WorkerError("it answered another job")
        return answer[NUMBER_BYTES:]

    def close(self) -> None:
        """Ends the process. It has nothing to lose."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _kill(self) -> None:
        self._killed = True
        self._process.kill()

    def _ending(self, seconds: float) -> str:
        """Returns how the process ended, whose connection is closed, and ends it."""
        try:
            code: int | None = self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        if self._killed:
            return f"killed after {seconds:g} s"
        return "its connection is broken" if code is None else f"exit code {code}"
