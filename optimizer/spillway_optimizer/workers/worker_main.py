"""A worker process: solves the problems that the leader sends, one after the other.

    python -m spillway_optimizer.workers.worker_main DESCRIPTOR BYTES

A job is a problem and its policy object. The answer is the outcome, its time in ms, and the policy
object with what it remembers. The worker itself remembers nothing. BYTES limits its data. worker.py
is the other end.
"""

import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue

import numpy as np
from spillway_runtime import logs

# Loads all policies before the first job.
from spillway_optimizer import policies  # noqa: F401
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy, Solution
from spillway_optimizer.process.children import end_first, limit_data
from spillway_optimizer.workers.attempt import attempt
from spillway_optimizer.workers.solved import Failed
from spillway_optimizer.workers.worker import NUMBER_BYTES, OUT_OF_MEMORY, READY

_PROTOCOL = 5  # of pickle: copies arrays least

Answer = tuple[Solution | Failed, float, Policy]


def packed(problem: Problem, router: Policy) -> bytes:
    """Returns a job."""
    return pickle.dumps((problem, router), _PROTOCOL)


def unpacked(answer: bytes) -> Answer | None:
    """Returns an answer, None: the worker had too little memory."""
    found: Answer | None = pickle.loads(answer)
    return found


def answer(job: bytes) -> bytes:
    """Solves a job."""
    try:
        problem, router = pickle.loads(job)
        outcome, ms = attempt(problem, lambda: router)
        if not (isinstance(outcome, Failed) and outcome.out_of_memory):
            return pickle.dumps((outcome, ms, router), _PROTOCOL)
    except MemoryError:
        pass
    return pickle.dumps(None)


def main(descriptor: int, most_bytes: int) -> None:
    """Answers jobs until the leader closes the connection."""
    limit_data(most_bytes)
    end_first()
    _start_blas()
    logs.start()
    connection = Connection(descriptor)
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    connection.send_bytes(READY)
    while True:
        job = jobs.get()
        connection.send_bytes(job[:NUMBER_BYTES] + answer(job[NUMBER_BYTES:]))


def _start_blas() -> None:
    """Lets BLAS allocate its buffer of 32 MB now.

    It would do so at the first product of a job. If too little memory is left then, it ends the
    process, where NumPy raises MemoryError.
    """
    np.ones((2, 2)) @ np.ones((2, 2))


def _receive(connection: Connection, jobs: SimpleQueue[bytes]) -> None:
    """Receives jobs. Ends the process with the connection, even while it solves."""
    try:
        while True:
            jobs.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
