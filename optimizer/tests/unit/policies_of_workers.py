"""Policies that misbehave in a worker process. Workers import them from here."""

import contextlib
import os
import time
from dataclasses import dataclass

import numpy as np
from spillway_optimizer import SolveError
from spillway_optimizer.policies.local import Local
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution


@dataclass
class Misbehaves:
    """Routes locally, after it has done what `how` says. Leaves the leader's process alone."""

    how: str = ""
    leader: int = 0  # process id
    turns: int = 0  # how often it has routed
    cargo: bytes = b""  # makes its jobs large

    def route(self, problem: Problem) -> Solution:
        self.turns += 1
        if os.getpid() != self.leader:
            self._misbehave()
        return Local().route(problem)

    def _misbehave(self) -> None:
        match self.how:
            case "crash":
                os.abort()
            case "hang":
                time.sleep(600)
            case "eat":
                raise MemoryError
            case "take all":
                bytearray(1 << 40)
            case "multiply":  # without memory for more than the matrices
                one, taken = np.ones((2, 2)), []
                with contextlib.suppress(MemoryError):
                    while True:
                        taken.append(bytearray(1 << 20))
                assert (one @ one).sum() == 8.0
                raise MemoryError
            case "fail":
                raise SolveError("no optimum")
            case "bug":
                raise KeyError("web")
            case "print":
                print("not an answer", flush=True)
                os.write(1, b"not an answer")
            case "look":
                found = sorted(name for name in os.environ if name.startswith("SPILLWAY_"))
                raise SolveError(f"{found} {os.environ['OPENBLAS_NUM_THREADS']}")
