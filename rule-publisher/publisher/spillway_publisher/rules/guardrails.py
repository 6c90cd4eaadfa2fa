"""Decides about a proposal: publish it, perhaps changed, or refuse it with every reason. Pure.

The checks come in this order: contract, freshness, kill switch, operator's hold, whether the rules
in force are known (checks.py), a ruleset on trial (canary.py), the base version (bases.py), frozen
weights (freeze.py). Then, per rule: pins, denied destinations, minimum local share, maximum shift.
Denied destinations fail closed: one refuses the whole ruleset. The published ruleset also carries
the denials of the guardrail file, which relays apply where there is no rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Destination, Rule, Ruleset
from spillway_contracts import bases, traffic_class
from spillway_contracts import ruleset as contract
from spillway_contracts.bases import RuleKey, rule_key
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import canary, checks, denials, freeze, held, weights
from spillway_publisher.rules.checks import SECOND, Context


@dataclass(frozen=True)
class Decision:
    """The ruleset to publish, or None when the proposal is refused.

    `reason` names keys, values and what is allowed. `refused_by` is one of contract, freshness,
    authority, unknown, trial, base, freeze, guardrails and shadow.
    """

    ruleset: Ruleset | None
    reason: str
    refused_by: str = ""


def decide(proposal: Ruleset, context: Context) -> Decision:
    """Runs all checks and guardrails on a decoded proposal. Never raises."""
    if problems := checks.timestamp_problems(proposal):
        return _refused("contract", problems)
    if problems := bases.partial_problems(proposal, context.in_force):
        return _refused("base", problems)
    asked, proposal = proposal, bases.completed(proposal, context.in_force)
    if problems := checks.contract_problems(proposal, context.topology):
        return _refused("contract", problems)
    if problems := checks.freshness_problems(proposal, context):
        return _refused("freshness", problems)
    if problems := checks.authority_problems(proposal, context):
        return _refused("authority", problems)
    if problems := checks.unknown_problems(proposal, context):
        return _refused("unknown", problems)
    if problems := canary.problems(proposal, context):
        return _refused("trial", problems)
    if not context.resumed and (problems := bases.conflicts(asked, context.in_force, context.now_ns)):
        return _refused("base", problems)
    if problems := freeze.problems(proposal, context):
        return _refused("freeze", problems)
    result, changes, problems = _guard(proposal, context)
    # Whatever the guardrails changed, a ruleset that breaks the contract is not published.
    problems = problems or contract.check(result, context.topology)
    if problems:
        return _refused("guardrails", problems)
    if context.policy.shadow:
        return _refused("shadow", ["shadow: true: computed, not published", *changes])
    # Every rule of an operator's ruleset gives the reason for sending it. The audit stores that
    # reason.
    reasons = [rule.reason for rule in proposal.rules[:1]] if proposal.origin == ORIGIN_OPERATOR else []
    reasons = [proposal.reason] if proposal.reason else reasons
    return Decision(result, "; ".join(filter(None, reasons + changes)))


def guarded(ruleset: Ruleset, context: Context) -> Ruleset:
    """Returns the ruleset within the guardrails, as `decide` changes it, without checking it."""
    return _guard(ruleset, context)[0]


def _refused(by: str, problems: list[str]) -> Decision:
    return Decision(None, "; ".join(problems), by)


def _guard(proposal: Ruleset, context: Context) -> tuple[Ruleset, list[str], list[str]]:
    """Returns the guarded ruleset, the changes made to it, and the problems to refuse it for."""
    result, problems = Ruleset(), []
    result.CopyFrom(proposal)
    result.ClearField("canary")
    del result.denials[:]
    result.denials.extend(denials.of(context.policy, [c.name for c in context.topology.clusters]))
    changes = _cut_expiry(result, context)
    in_force = _rules_in_force(context)
    pinned = _apply_pins(result, context.policy)
    maximum = context.policy.maximum_shift
    counts = {"pins": sum(pinned.values()), "minimum_local_share": 0, "maximum_shift": 0}
    for i, rule in enumerate(result.rules):
        if rule_key(rule) in pinned:
            continue
        denied = [
            d.cluster for d in rule.destinations if d.weight and _denied(rule, d.cluster, context.policy)
        ]
        problems += [
            f"rules[{i}].destinations: {cluster!r} is a denied destination of "
            f"{traffic_class.format_id(rule.traffic_class)!r} from {rule.source_cluster!r}"
            for cluster in denied
        ]
        if not denied:
            counts["minimum_local_share"] += _keep_local(rule, context)
            if maximum is not None and proposal.origin != ORIGIN_OPERATOR:
                base = in_force.get(rule_key(rule))
                counts["maximum_shift"] += _limit_shift(rule, base, maximum, context)
    changes += [
        f"{key}: changed {count} of {len(result.rules)} rules" for key, count in counts.items() if count
    ]
    return result, changes, problems


def _cut_expiry(result: Ruleset, context: Context) -> list[str]:
    maximum = context.policy.maximum_expiry_seconds
    latest = context.now_ns + int(maximum * SECOND)
    if result.expires_at.ToNanoseconds() <= latest:
        return []
    result.expires_at.FromNanoseconds(latest)
    return [f"expires_at: cut to maximum_expiry_seconds {maximum:g}"]


def _rules_in_force(context: Context) -> dict[RuleKey, Rule]:
    """Returns the rules that relays route by now.

    Relays hold an expired ruleset, which gives way to local-first in steps.
    """
    return {rule_key(rule): rule for rule in held.rules(context.in_force, context.topology, context.now_ns)}


def _apply_pins(result: Ruleset, policy: Guardrails) -> dict[RuleKey, bool]:
    """Sets every pinned rule to its pin, and adds missing ones. Does nothing while killed.

    Returns for each pinned rule whether its weights changed.
    """
    pins = [] if policy.kill else policy.pins
    rules = {rule_key(rule): rule for rule in result.rules}
    pinned = {}
    for pin in pins:
        key = (pin.source_cluster, pin.source_service, pin.traffic_class)
        rule = rules.get(key)
        if rule is None:
            rule = result.rules.add(source_cluster=pin.source_cluster, source_service=pin.source_service)
            rule.traffic_class.CopyFrom(traffic_class.parse(pin.traffic_class))
        pinned[key] = _set_weights(rule, pin.destinations, "pins: fixed by the operator", None)
    return pinned


def _denied(rule: Rule, cluster: str, policy: Guardrails) -> bool:
    class_id = traffic_class.format_id(rule.traffic_class)
    return policy.denies(rule.source_cluster, class_id, cluster)


def _closed(rule: Rule, cluster: str, policy: Guardrails) -> bool:
    """Returns whether requests should leave the cluster at once: denied or drained."""
    return cluster in policy.drained_clusters or _denied(rule, cluster, policy)


def _keep_local(rule: Rule, context: Context) -> bool:
    local, minimum = rule.source_cluster, context.policy.minimum_local_share
    proposed = _weights(rule)
    service = rule.traffic_class.service
    if local not in proposed and local not in held.placed(context.topology, service):
        return False
    if not proposed.get(local) and context.gone(service, local):
        return False
    if proposed.get(local, 0) >= minimum or _closed(rule, local, context.policy):
        return False
    why = f"minimum_local_share: {proposed.get(local, 0)} raised to {minimum}"
    return _set_weights(rule, weights.raise_local(proposed, local, minimum), why, None)


def _limit_shift(rule: Rule, base: Rule | None, maximum: int, context: Context) -> bool:
    """Limits the step from the weights in force, if they are known and still allowed.

    Returns whether the rule changed.
    """
    if base is not None:
        start = _weights(base)
    elif rule.source_cluster in held.placed(context.topology, rule.traffic_class.service):
        start = {rule.source_cluster: weights.TOTAL}  # without a rule, relays serve local-first
    else:
        return False
    # Requests leave at once a cluster to which they must not, or cannot, go any more.
    reachable = {
        link.destination_cluster
        for link in context.topology.links
        if link.source_cluster == rule.source_cluster
    }
    reachable.add(rule.source_cluster)
    service = rule.traffic_class.service
    if any(
        w and (c not in reachable or context.gone(service, c) or _closed(rule, c, context.policy))
        for c, w in start.items()
    ):
        return False
    target = _weights(rule)
    why = f"maximum_shift: a shift of {weights.shift(start, target)} clamped to {maximum}"
    start = {c: w for c, w in start.items() if w}
    return _set_weights(rule, weights.clamp(start, target, maximum), why, base)


def _weights(rule: Rule) -> dict[str, int]:
    return {d.cluster: d.weight for d in rule.destinations}


def _set_weights(rule: Rule, target: Mapping[str, int], why: str, base: Rule | None) -> bool:
    """Sets the rule's weights to `target`, keeps predictions, and adds `why` to the rule's reason.

    Returns False without changing anything when the weights are the same. Clusters that only `base`
    has keep the predictions of `base`.
    """
    if {c: w for c, w in _weights(rule).items() if w} == {c: w for c, w in target.items() if w}:
        return False
    known = {d.cluster: d for d in [*(base.destinations if base else []), *rule.destinations]}
    destinations = []
    for cluster in sorted(target):
        destination = Destination()
        destination.CopyFrom(known.get(cluster, destination))
        destination.cluster, destination.weight = cluster, target[cluster]
        destinations.append(destination)
    del rule.destinations[:]
    rule.destinations.extend(destinations)
    rule.reason = "; ".join(filter(None, [rule.reason, why]))
    return True
