"""One run of the optimizer on its way from telemetry to a ruleset. Pure."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology

from spillway_optimizer import hot
from spillway_optimizer.decide import Action, Decision
from spillway_optimizer.extract import Stamp, UnverifiedError, from_rules
from spillway_optimizer.model import Model
from spillway_optimizer.objective import Evaluation
from spillway_optimizer.solves import Occasion, Solved
from spillway_optimizer.verify import exceeded, verify


@dataclass
class Case:
    """One run, as far as it got."""

    occasion: Occasion
    in_force: hot.InForce | None
    model: Model | None = None
    solved: Solved | None = None
    decision: Decision | None = None
    ruleset: Ruleset | None = None
    evaluation: Evaluation | None = None  # of the ruleset
    notes: Sequence[str] = ()
    refusal: str | None = None  # why the solve came to nothing

    def check(self, topology: Topology, token: int, ttl_s: float) -> None:
        """Makes the ruleset of what was decided. Raises UnverifiedError naming all that is wrong."""
        problem, decision = self.model.problem, self.decision
        least_bad = self.solved.least_bad if self.solved else None
        problems = verify(problem, decision.rules, least_bad, decision.slack)
        if problems and decision.action is not Action.WAIT:
            raise UnverifiedError("; ".join(problems))
        stamp = Stamp(
            ruleset_id=str(uuid.uuid4()),
            policy=decision.memory.policy,
            origin=Origin.ORIGIN_OPTIMIZER,
            window=self.model.window,
            created_at=time.time(),  # not of the tick: the publisher counts its age from here
            ttl_s=ttl_s,
            classes=self.model.classes,
            fencing_token=token,
        )
        self.ruleset, self.evaluation = from_rules(problem, decision.rules, stamp, topology)
        self.notes = exceeded(problem, self.evaluation)

    def said(self) -> tuple[str, ...]:
        told = [] if self.refusal is None else [f"refused: {self.refusal}"]
        told += self.model.notes if self.model else ()
        if self.evaluation is not None:
            told += [*self.model.problem.layout.notes, *self.notes]
            told += self.solved.solution.notes if self.solved else ()
        return tuple(dict.fromkeys(told))
