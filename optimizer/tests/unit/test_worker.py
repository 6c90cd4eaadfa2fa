"""One worker process: when it is ready, what it answers, and how it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest
from instances import random_problem
from policies_of_workers import Misbehaves
from processes_of_workers import WAIT_S, gone, python_path
from spillway_optimizer.workers.worker import MAIN, Worker, WorkerError
from spillway_optimizer.workers.worker_main import packed, unpacked


def test_a_process_that_ends_at_once_is_never_ready():
    worker = Worker(1 << 30, (sys.executable, "-c", "pass"))
    assert not worker.ready(WAIT_S)
    worker.close()
    assert not worker.alive and MAIN[0] == sys.executable


SLOW = """
import sys, time
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
time.sleep(1.0)
connection.send_bytes(b"ready")
job = connection.recv_bytes()
connection.send_bytes(job)
connection.send_bytes(b"another" + job)
time.sleep(60)
"""


def test_a_process_that_loads_its_modules_is_not_ready():
    """What it says when it is ready was once taken for the answer to the first job.

    All later answers were those to the jobs before.
    """
    worker = Worker(1 << 30, (sys.executable, "-c", SLOW))
    assert not worker.ready() and worker.alive
    assert worker.ready(WAIT_S) and worker.ready()
    assert worker.ask(b"first", WAIT_S) == b"first"
    with pytest.raises(WorkerError, match="answered another job"):
        worker.ask(b"second", WAIT_S)
    assert not worker.alive


def test_a_worker_that_lacks_memory_for_a_product_of_matrices_says_so(monkeypatch):
    """BLAS has its buffer of 32 MB from the start. Without it, it would end the process here."""
    monkeypatch.setenv("PYTHONPATH", python_path())
    problem = random_problem(0, constrained=False, convex=False, clusters=3)
    worker = Worker(256 << 20)
    try:
        assert worker.ready(WAIT_S)
        answer = worker.ask(packed(problem, Misbehaves("multiply")), WAIT_S)
        assert unpacked(answer) is None
        assert worker.alive
    finally:
        worker.close()


def test_workers_end_with_their_leader_even_while_they_solve():
    """A leader that is killed leaves no processes behind."""
    code = """
import os, sys, threading
from policies_of_workers import Misbehaves
from spillway_optimizer.workers.worker import Worker
from spillway_optimizer.workers.worker_main import packed
workers = [Worker(1 << 30), Worker(1 << 30)]
assert all(worker.ready(120) for worker in workers)
threading.Thread(target=workers[0].ask, args=(packed(None, Misbehaves("hang")), 600), daemon=True).start()
print(*(worker.pid for worker in workers), flush=True)
sys.stdin.read()
"""
    path = python_path()
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    with parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.5)  # one of them sleeps in its solve
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert all(gone(pid) for pid in pids)
