"""Holds the weights in force while the guardrails say `freeze: true`. Pure."""

import uuid
from collections.abc import Iterable, Mapping

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Origin, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.bases import RuleKey, rule_key
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import denials, held
from spillway_publisher.rules.checks import SECOND, Context

# Weights are renewed for LIFETIME_S when a ruleset in force has less than RENEWED_S left.
RENEWED_S, LIFETIME_S = 30, 120


def problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns which weights the proposal would change although they are held.

    A renewal has the weights by which relays route now, or those of the ruleset in force where it
    has expired. Denied destinations may leave. Pins apply in any case. Operators may change
    weights. A proposal that has its version already is completed, so that clusters do not differ.
    """
    if not context.policy.freeze or context.resumed or proposal.origin == ORIGIN_OPERATOR:
        return []
    proposed = _by_key(proposal.rules)
    routed = _by_key(held.rules(context.in_force, context.topology, context.now_ns))
    stored = _by_key(rule for part in context.in_force.values() for rule in part.rules)
    pinned = {(pin.source_cluster, pin.source_service, pin.traffic_class) for pin in context.policy.pins}
    changed = [
        key
        for key in sorted((proposed.keys() | routed.keys()) - pinned)
        if held.routed(proposed.get(key), key)
        not in [_allowed(base.get(key), key, context) for base in (routed, stored)]
    ]
    if not changed:
        return []
    cluster, service, class_id = changed[0]
    more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
    return [
        f"freeze: true: the weights in force stay; the proposal changes those of {service!r} in {cluster!r} for "
        f"{class_id!r}{more}"
    ]


def renewal(
    in_force: Mapping[str, Ruleset],
    policy: Guardrails,
    topology: Topology,
    fences: Mapping[Origin, int],
    now_ns: int,
) -> Ruleset | None:
    """Returns a proposal that renews the weights that are held, or None while none is due.

    The optimizer renews what the file freezes. It does not see the acts of operators, so without
    this the weights that an act freezes would give way to local-first. The rules keep their
    proposer, and have its newest fencing token: a new leader that was refused meanwhile must not
    keep the renewal out.
    """
    expires = min((ruleset.expires_at.ToNanoseconds() for ruleset in in_force.values()), default=0)
    if not policy.freeze or not in_force or expires - now_ns > RENEWED_S * SECOND:
        return None
    proposal = denials.renewed(in_force, policy, topology, now_ns)
    if not proposal.rules:
        return None  # relays serve local-first, and hold that without a ruleset
    holds = proposal.id.startswith(denials.ROLLED_BACK)
    proposal.id = f"{denials.ROLLED_BACK if holds else ''}held-{uuid.uuid4()}"
    proposal.fencing_token = max(proposal.fencing_token, fences.get(proposal.origin, 0))
    proposal.expires_at.FromNanoseconds(now_ns + LIFETIME_S * SECOND)
    return proposal


def _by_key(rules: Iterable[Rule]) -> dict[RuleKey, Rule]:
    return {rule_key(rule): rule for rule in rules}


def _allowed(base: Rule | None, key: RuleKey, context: Context) -> Mapping[str, int]:
    return held.routed(denials.allowed(base, context.policy) if base else None, key)
