"""The guardrail file's denials in the form in which rulesets carry them down to Envoy. Pure.

Only the publisher sets denials: those in a proposal are replaced.
"""

import uuid
from collections.abc import Collection, Mapping

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Denial, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import slices, traffic_class
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import held, weights

SECOND = 10**9
# Lifetime in seconds of expired rules that are published again, and of denials without rules.
# Denials hold beyond it.
LIFETIME_S = 120
# How the id of a trial's rollback begins, and of what renews it: it holds until it expires.
ROLLED_BACK = "rolled-back-"


def of(policy: Guardrails, clusters: Collection[str]) -> list[Denial]:
    """Returns the denials of the policy in the form that the ruleset contract requires.

    There is one per source cluster and class, sorted, with all of its denied clusters.
    """
    merged: dict[tuple[str, str], set[str]] = {}
    for denial in policy.denied_destinations:
        sources = sorted(clusters) if denial.source_cluster is None else [denial.source_cluster]
        for source in sources:
            merged.setdefault((source, denial.traffic_class or ""), set()).update(denial.clusters)
    return [_denial(source, class_id, denied) for (source, class_id), denied in sorted(merged.items())]


def _denial(source: str, class_id: str, denied: set[str]) -> Denial:
    denial = Denial(source_cluster=source, clusters=sorted(denied))
    if class_id:
        denial.traffic_class.CopyFrom(traffic_class.parse(class_id))
    return denial


def renewal(
    in_force: Mapping[str, Ruleset], policy: Guardrails, topology: Topology, now_ns: int
) -> Ruleset | None:
    """Returns a proposal that applies the policy's denials to what is in force.

    Returns None when the denials in force are the policy's already. The rules, their proposer and
    their expiry stay. Shares that are denied now go to the rule's other clusters in proportion. A
    rule without any destination left is left out. When a ruleset in force has expired, or there is
    none, the proposal's origin is the operator. So a newer leader's fencing token does not keep the
    denials out.
    """
    wanted = of(policy, [cluster.name for cluster in topology.clusters])
    current = [denial for _, ruleset in sorted(in_force.items()) for denial in ruleset.denials]
    if current == wanted:
        return None
    proposal = renewed(in_force, policy, topology, now_ns)
    if _expiry(in_force) <= now_ns:
        proposal.origin = ORIGIN_OPERATOR
    return proposal


def renewed(in_force: Mapping[str, Ruleset], policy: Guardrails, topology: Topology, now_ns: int) -> Ruleset:
    """Returns the proposal of `renewal`, even if the denials did not change.

    The origin stays that of the rulesets in force. Expired rules get the weights that relays route
    by now, and a short lifetime. With their first weights, requests would move back at once to
    where relays have given up sending them. When nothing is in force, or relays do not hold it any
    longer, the proposal has no rules: local-first within the denials.
    """
    proposal = slices.join(sorted(in_force.values(), key=lambda ruleset: ruleset.version))
    holds = any(is_rollback(ruleset) for ruleset in in_force.values())
    proposal.id, proposal.version = f"{ROLLED_BACK if holds else ''}denials-{uuid.uuid4()}", 0
    # Not older than what it replaces, because that proposer's clock may be ahead of ours.
    newest = max((r.created_at.ToNanoseconds() for r in in_force.values()), default=0)
    proposal.created_at.FromNanoseconds(max(now_ns, newest))
    for field in ("denials", "reset_fences", "reason", "base_version", "canary", "concludes"):
        proposal.ClearField(field)
    # If another change comes in between, this proposal is refused and the service makes a new one.
    proposal.base_version = max((r.version for r in in_force.values()), default=0)
    adapted = (allowed(rule, policy) for rule in held.rules(in_force, topology, now_ns))
    rules = [rule for rule in adapted if rule.destinations]
    del proposal.rules[:]
    proposal.rules.extend(rules)
    expiry = _expiry(in_force)
    if expiry <= now_ns:
        expiry = now_ns + LIFETIME_S * SECOND
        proposal.ClearField("fencing_token")
        proposal.ClearField("predicted")
        if not rules:
            proposal.origin, proposal.policy = ORIGIN_OPERATOR, "local"
            proposal.input_window.id = proposal.input_window.id or "none"
    proposal.expires_at.FromNanoseconds(expiry)
    return proposal


def is_rollback(ruleset: Ruleset) -> bool:
    return ruleset.origin == ORIGIN_OPERATOR and ruleset.id.startswith(ROLLED_BACK)


def _expiry(in_force: Mapping[str, Ruleset]) -> int:
    """Returns the Unix nanoseconds at which the first ruleset expires; 0 without any ruleset."""
    return min((ruleset.expires_at.ToNanoseconds() for ruleset in in_force.values()), default=0)


def allowed(rule: Rule, policy: Guardrails) -> Rule:
    """Returns the rule without its denied destinations; no destinations when all are denied."""
    class_id = traffic_class.format_id(rule.traffic_class)
    kept = {
        d.cluster: d.weight
        for d in rule.destinations
        if not policy.denies(rule.source_cluster, class_id, d.cluster)
    }
    return rule if len(kept) == len(rule.destinations) else held.reweighted(rule, weights.scaled(kept))
