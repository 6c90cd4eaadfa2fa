"""Begins a trial: which rulesets need one, and the version that tries them. Pure."""

from spillway.v1.ruleset_pb2 import ORIGIN_OPTIMIZER, Canary, Ruleset
from spillway_contracts.guardrails import CANARY_GRACE_S

from spillway_publisher.rules import denials, guardrails
from spillway_publisher.rules.canary import changed
from spillway_publisher.rules.checks import SECOND, Context


def begun(decided: Ruleset, context: Context, given: int | None) -> Ruleset | None:
    """Returns the trial of a ruleset that may be published; None: it needs none.

    A change of weights that the optimizer proposes needs a trial, when the guardrails ask for it
    and every cluster has a ruleset. PAPA judges its own small steps, and would not wait for a
    trial. Local-first under the kill switch needs none. `given`: the version that the ruleset got
    before a crash. It is then completed as it began.
    """
    canary = _wanted(decided, context) if given is None else _as_before(context, given)
    if canary is None or context.policy.kill:
        return None
    whole = denials.renewed(context.in_force, context.policy, context.topology, context.now_ns)
    for field in ("id", "origin", "fencing_token", "reason"):
        setattr(whole, field, getattr(decided, field))
    whole.created_at.CopyFrom(decided.created_at)
    latest = max(decided.expires_at.ToNanoseconds(), canary.until.ToNanoseconds())
    whole.expires_at.FromNanoseconds(latest)
    whole = guardrails.guarded(whole, context)
    if given is None and not changed(whole.rules, decided.rules):
        return None  # the guardrails alone change weights
    canary.ruleset.CopyFrom(decided)
    canary.ruleset.expires_at.FromNanoseconds(latest)
    for field in ("base_version", "partial"):
        canary.ruleset.ClearField(field)
    whole.canary.CopyFrom(canary)
    return whole


def _as_before(context: Context, given: int) -> Canary | None:
    """Returns clusters, share and end of the trial that some cluster has under this version."""
    for part in context.in_force.values():
        if part.version == given and part.HasField("canary"):
            known = part.canary
            return Canary(clusters=known.clusters, share=known.share, until=known.until)
    return None


def _wanted(decided: Ruleset, context: Context) -> Canary | None:
    policy = context.policy.canary
    if policy is None or decided.origin != ORIGIN_OPTIMIZER or decided.concludes:
        return None
    if context.policy.freeze:
        return None  # what passes changes no weights
    if set(context.in_force) != {cluster.name for cluster in context.topology.clusters}:
        return None
    stored = [rule for part in context.in_force.values() for rule in part.rules]
    if not changed(stored, decided.rules):
        return None  # a renewal, perhaps of an expired ruleset
    canary = Canary(clusters=sorted(policy.clusters), share=policy.share)
    canary.until.FromNanoseconds(context.now_ns + int((policy.seconds + CANARY_GRACE_S) * SECOND))
    return canary
