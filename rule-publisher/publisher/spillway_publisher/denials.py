"""The guardrail file's denials as every ruleset carries them down to Envoy. Pure.

The publisher is the one who says them: whatever denials a proposal has are replaced.
"""

import uuid
from collections.abc import Collection, Mapping

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Denial, Destination, Rule, Ruleset
from spillway_contracts import traffic_class
from spillway_contracts.guardrails import Guardrails

from spillway_publisher import slices, weights

SECOND = 10**9
LIFETIME_S = 120  # of a ruleset that has nothing but denials; they hold beyond it


def of(policy: Guardrails, clusters: Collection[str]) -> list[Denial]:
    """What the ruleset contract asks for: one per source cluster and class, in order, with all its clusters."""
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
    in_force: Mapping[str, Ruleset], policy: Guardrails, clusters: Collection[str], now_ns: int
) -> Ruleset | None:
    """A proposal that brings what is in force under the policy's denials; None: it is already.

    The rules, their proposer and their expiry stay, without the shares that are denied now: those go to
    the rule's other clusters in proportion, and a rule that has none left is left out. When nothing is
    in force, or it has expired, the proposal has no rules: local-first within the denials.
    """
    wanted = of(policy, clusters)
    said = [denial for _, ruleset in sorted(in_force.items()) for denial in ruleset.denials]
    return None if said == wanted else renewed(in_force, policy, now_ns)


def renewed(in_force: Mapping[str, Ruleset], policy: Guardrails, now_ns: int) -> Ruleset:
    """The proposal of `renewal`, whether the denials changed or not."""
    proposal = slices.join(sorted(in_force.values(), key=lambda ruleset: ruleset.version))
    proposal.id, proposal.version = f"denials-{uuid.uuid4()}", 0
    # Not older than what it replaces, though that proposer's clock may be ahead of ours.
    newest = max((r.created_at.ToNanoseconds() for r in in_force.values()), default=0)
    proposal.created_at.FromNanoseconds(max(now_ns, newest))
    for field in ("denials", "reset_fences", "reason", "base_version"):
        proposal.ClearField(field)
    # A change that comes in between refuses this proposal; the service then makes another.
    proposal.base_version = max((r.version for r in in_force.values()), default=0)
    expiries = [ruleset.expires_at.ToNanoseconds() for ruleset in in_force.values()]
    if min(expiries, default=0) > now_ns:
        proposal.expires_at.FromNanoseconds(min(expiries))
        rules = [_allowed(rule, policy) for rule in proposal.rules]
    else:
        proposal.origin, proposal.policy, rules = ORIGIN_OPERATOR, "local", []
        proposal.input_window.id = proposal.input_window.id or "none"
        proposal.expires_at.FromNanoseconds(now_ns + LIFETIME_S * SECOND)
        proposal.ClearField("fencing_token")
        proposal.ClearField("predicted")
    del proposal.rules[:]
    proposal.rules.extend(rule for rule in rules if rule.destinations)
    return proposal


def _allowed(rule: Rule, policy: Guardrails) -> Rule:
    """The rule without what is denied to it; without destinations when all of it is."""
    class_id = traffic_class.format_id(rule.traffic_class)
    kept = {
        d.cluster: d for d in rule.destinations if not policy.denies(rule.source_cluster, class_id, d.cluster)
    }
    if len(kept) == len(rule.destinations):
        return rule
    allowed = Rule()
    allowed.CopyFrom(rule)
    del allowed.destinations[:]
    for cluster, weight in weights.scaled({c: d.weight for c, d in kept.items()}).items():
        destination = Destination()
        destination.CopyFrom(kept[cluster])
        destination.weight = weight
        allowed.destinations.append(destination)
    return allowed
