"""The proposals that conclude a trial. They take the same way as any other. Pure."""

import uuid
from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import denials
from spillway_publisher.rules.canary import Trial
from spillway_publisher.rules.checks import SECOND

LIFETIME_S = 120
# How long the operator's hold keeps the optimizer from trying the same again
ROLLED_BACK_S = 600


def kept(trial: Trial, why: str, now_ns: int) -> Ruleset:
    """Returns the proposal that puts the ruleset on trial in force everywhere, by its proposer."""
    proposal = Ruleset()
    proposal.CopyFrom(trial.whole.canary.ruleset)
    for field in ("denials", "version"):
        proposal.ClearField(field)
    proposal.id = f"kept-{trial.version}-{uuid.uuid4()}"
    return _concluding(proposal, trial, f"the canary is kept: {why}", now_ns, LIFETIME_S)


def rolled_back(
    trial: Trial,
    in_force: Mapping[str, Ruleset],
    policy: Guardrails,
    topology: Topology,
    why: str,
    now_ns: int,
) -> Ruleset:
    """Returns the proposal that ends the trial, with the weights that all other Envoys have kept.

    Its origin is the operator, so that it holds for ROLLED_BACK_S.
    """
    proposal = denials.renewed(in_force, policy, topology, now_ns)
    proposal.id = f"{denials.ROLLED_BACK}{trial.version}-{uuid.uuid4()}"
    proposal.origin = ORIGIN_OPERATOR
    proposal.ClearField("fencing_token")
    return _concluding(proposal, trial, f"the canary is rolled back: {why}", now_ns, ROLLED_BACK_S)


def _concluding(proposal: Ruleset, trial: Trial, reason: str, now_ns: int, lifetime_s: int) -> Ruleset:
    proposal.concludes = proposal.base_version = trial.version
    proposal.reason = reason
    # Not older than the trial, because its proposer's clock may be ahead of ours.
    created = max(now_ns, trial.whole.created_at.ToNanoseconds())
    proposal.created_at.FromNanoseconds(created)
    proposal.expires_at.FromNanoseconds(created + lifetime_s * SECOND)
    return proposal
