"""Audits beside the running optimizer: one child process at a time proves what a solve could miss.

The leader never waits for an audit. A child that fails, or that needs too much time or memory, is
counted and has no other effect.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.process.children import environment
from spillway_optimizer.process.states import States
from spillway_optimizer.service.following import Following
from spillway_optimizer.solving import metrics
from spillway_optimizer.solving.audits import (
    BETTER,
    FAILED,
    MOST_SHARES,
    OUTCOMES,
    TOO_LARGE,
    WRONG,
    AuditError,
    Proof,
    document,
    next_of,
    verdict,
)
from spillway_optimizer.solving.config import Optimizer
from spillway_optimizer.solving.routing import start_of
from spillway_optimizer.solving.solves_table import Occasion, audit_row
from spillway_optimizer.workers.solved import Solved

CERTIFY = (sys.executable, "-m", "spillway_optimizer", "certify")
# Of the limit. The child keeps to the limit itself, but not within a linear programme, and at the
# lowest priority it may get no CPU at all.
_KILLED_AFTER = 5
_LONGEST_ERROR = 300
_STOP_S = 1.5
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """A solve to audit, among those of all applications in the same run."""

    occasion: Occasion
    application: str
    solves: Mapping[str, Solved]

    @property
    def solved(self) -> Solved:
        return self.solves[self.application]


class Auditing:
    """Runs audits. Its state: the running one, and when the last one of each application began."""

    def __init__(
        self,
        settings: Optimizer,
        lease: Lease,
        history: History,
        states: States,
        following: Following,
        command: Sequence[str] = CERTIFY,
    ):
        self._settings, self._lease, self._history = settings, lease, history
        self._states, self._following, self._command = states, following, command
        self._started: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        for outcome in OUTCOMES:
            # Served from the start, so that the first one shows as an increase.
            states.counters[f"audit.{outcome}"] += 0

    def offer(self, occasion: Occasion, solved: Mapping[str, Solved]) -> None:
        """Starts an audit of one of these solves, by application, if one is due."""
        running = self._task is not None and not self._task.done()
        if running or self._settings.audit_s <= 0 or occasion.policy != SPILLWAY:
            return
        now = time.monotonic()
        name = next_of(solved, self._started, now, self._settings.audit_s)
        if name is not None:
            self._started = {k: at for k, at in self._started.items() if k in solved} | {name: now}
            self._task = asyncio.create_task(self._audit(Subject(occasion, name, solved)))

    async def stop(self) -> None:
        """Kills the child of a running audit, which is then not counted."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_STOP_S)

    async def _audit(self, subject: Subject) -> None:
        about = f"audit of {subject.application}" if subject.application else "audit"
        try:
            shares = subject.solved.problem.layout.usable.size
            if shares > MOST_SHARES:
                why = f"not audited: {shares} shares; at most {MOST_SHARES} are"
                self._states.log(about, why, logging.INFO, f"audit.{TOO_LARGE}")
                return
            proof = await self._proof(subject)
            if self._lease.held():
                await self._conclude(about, subject, proof)
        except AuditError as error:
            self._states.log(about, f"failed: {error}", logging.WARNING, f"audit.{FAILED}")
        except Exception:
            _LOG.exception("%s failed", about)
            self._states.counters[f"audit.{FAILED}"] += 1

    async def _conclude(self, about: str, subject: Subject, proof: Proof) -> None:
        """Records a proof, and hands a better routing to the next solve."""
        solution = subject.solved.solution
        if proof.shares.shape != solution.shares.shape:
            raise AuditError(f"not a proof: shares of the shape {list(proof.shares.shape)}")
        found = verdict(solution, proof, self._settings.min_gain)
        reason = f"{found.outcome}: {found.reason}"
        row = audit_row(subject.occasion, reason, subject.application, solution, proof, found.difference)
        self._history.add("solves", row)
        metrics.note_audit(self._states, proof.unproven, found.difference)
        if found.outcome in (BETTER, WRONG):
            start = await asyncio.to_thread(start_of, subject.application, proof.shares, subject.solves)
            self._following.suggest(*start)
        level = logging.WARNING if found.outcome == WRONG else logging.INFO
        self._states.log(about, reason if found.outcome == WRONG else found.outcome, level)
        self._states.counters[f"audit.{found.outcome}"] += 1

    async def _proof(self, subject: Subject) -> Proof:
        """Returns the child's proof. Raises AuditError."""
        limit_s = self._settings.audit_limit_s
        gap = max(self._settings.min_gain, self._settings.relative_gap)
        solved = subject.solved
        given = await asyncio.to_thread(
            lambda: json.dumps(document(solved.problem, solved.solution)).encode()
        )
        printed = await self._run(
            ["--relative-gap", str(gap), "--seconds", str(limit_s)], given, limit_s * _KILLED_AFTER
        )
        try:
            return Proof.of(json.loads(printed))
        except ValueError as error:
            raise AuditError(f"not a proof: {error}") from error

    async def _run(self, options: Sequence[str], given: bytes, seconds: float) -> bytes:
        """Returns what the child prints on stdout. Raises AuditError."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *self._command, *options, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
        )
        try:
            async with asyncio.timeout(seconds):
                printed, errors = await child.communicate(given)
        except TimeoutError:
            raise AuditError(f"killed after {seconds:g} s") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2][-_LONGEST_ERROR:]
            raise AuditError(f"exit code {child.returncode}: {last or 'no message'}")
        return printed
