"""Checks of a whole proposal before any of its rules: contract, time, authority. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, traffic_class
from spillway_contracts import ruleset as contract
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import denials, fences

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Context:
    """What a decision depends on besides the proposal."""

    topology: Topology
    policy: Guardrails
    in_force: Mapping[str, Ruleset]  # by cluster, without clusters that never had a ruleset
    now_ns: int  # Unix nanoseconds
    # A version was assigned before a crash. The proposal was fresh then; now only its expiry
    # counts.
    resumed: bool = False
    # By origin: the newest fencing token that it has proposed with.
    fences: Mapping[Origin, int] = field(default_factory=dict)
    # By cluster: the services with a live Envoy there. Clusters whose relays are silent are left
    # out.
    placement: Mapping[str, frozenset[str]] = field(default_factory=dict)

    # Why it is unknown which rulesets relays route by; None: it is known
    unknown: str | None = None

    def gone(self, service: str, cluster: str) -> bool:
        """Returns whether the cluster's relays report, but no Envoy of the service."""
        return service not in self.placement.get(cluster, {service})


def contract_problems(proposal: Ruleset, topology: Topology) -> list[str]:
    """Returns what is wrong with a proposal whatever the time and the policy."""
    # Times come first, because comparing invalid timestamps raises.
    if problems := timestamp_problems(proposal):
        return problems
    problems = contract.check(proposal, topology)
    if proposal.version:
        problems.append(f"version: {proposal.version}; must be 0 in a proposal: the publisher assigns it")
    if proposal.origin not in Origin.values() or not proposal.origin:
        allowed = ", ".join(name for name, value in Origin.items() if value)
        problems.append(f"origin: {proposal.origin}; must be one of {allowed}")
    for i, known in enumerate(proposal.traffic_classes):
        try:
            traffic_class.parse(traffic_class.format_id(known))
        except ContractError as error:
            problems.append(f"traffic_classes[{i}]: {error}")
    return problems


def timestamp_problems(ruleset: Ruleset) -> list[str]:
    """Returns a problem for each timestamp outside the years 1 to 9999.

    Protobuf libraries cannot convert such a timestamp to a time.
    """
    problems = []
    for key, instant in (
        ("created_at", ruleset.created_at),
        ("expires_at", ruleset.expires_at),
        ("input_window.start", ruleset.input_window.start),
        ("input_window.end", ruleset.input_window.end),
    ):
        try:
            instant.ToJsonString()
        except ValueError as error:
            problems.append(f"{key}: {error}")
    return problems


def freshness_problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns problems of time: expired, too old, in the future, older than the last one.

    The origin's last one is the ruleset that the same origin has in force.
    """
    problems = []
    remaining = proposal.expires_at.ToNanoseconds() - context.now_ns
    if remaining <= 0:
        problems.append(f"expires_at: {-remaining / SECOND:.1f} s ago; must be in the future")
    if context.resumed:
        return problems
    age = context.now_ns - proposal.created_at.ToNanoseconds()
    maximum = context.policy.maximum_age_seconds
    if abs(age) > maximum * SECOND:
        where = "ago" if age > 0 else "ahead"
        problems.append(
            f"created_at: {abs(age) / SECOND:.1f} s {where}; maximum_age_seconds allows {maximum:g} s"
        )
    newest = max(
        (r.created_at.ToNanoseconds() for r in context.in_force.values() if r.origin == proposal.origin),
        default=0,
    )
    behind = newest - proposal.created_at.ToNanoseconds()
    if behind > 0:
        problems.append(f"created_at: {behind / SECOND:.3f} s older than the same origin's ruleset in force")
    return problems


def authority_problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns problems of authority: a replaced leader, the kill switch, and the operator's hold.

    While an operator's ruleset is held, other origins cannot replace it.
    """
    if problems := _fence_problems(proposal, context):
        return problems
    if context.policy.kill and not is_local_first(proposal):
        return ["kill: true: only local-first is published (no rules, or all weight on the own cluster)"]
    return _hold_problems(proposal, context)


def _hold_problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns why an operator's ruleset keeps the proposal out.

    A trial's rollback holds whatever the file says: else the same would be tried again and again.
    Without rules, any other one is the kill switch's, which holds by itself.
    """
    if proposal.origin == ORIGIN_OPERATOR or context.resumed:
        return []
    for cluster, held in sorted(context.in_force.items()):
        remaining = held.expires_at.ToNanoseconds() - context.now_ns
        is_rollback = denials.is_rollback(held)
        kept = is_rollback or (held.rules and context.policy.operator_hold)
        if held.origin == ORIGIN_OPERATOR and kept and remaining > 0:
            why = "a trial was rolled back" if is_rollback else "operator_hold: true"
            who = f"version {held.version} of origin ORIGIN_OPERATOR"
            where = f"in force in {cluster!r} for {remaining / SECOND:.0f} s more"
            return [f"{why}: {who} is {where}; only the operator replaces it"]
    return []


def unknown_problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns why the proposal must wait until it is known which rulesets relays route by.

    That applies to proposals whose steps `maximum_shift` bounds, and to resets of fencing tokens,
    which start from the rulesets in force.
    """
    if context.unknown is None or context.resumed or context.policy.maximum_shift is None:
        return []
    if proposal.origin == ORIGIN_OPERATOR and not proposal.reset_fences:
        return []
    return [
        f"what is in force is unknown: {context.unknown}. maximum_shift cannot be applied. Rulesets are held until one "
        f"of the operator is published or maximum_shift is left out of the guardrails"
    ]


def _fence_problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns problems of the fencing token: late proposals of a replaced leader are refused."""
    if not fences.plausible(proposal.fencing_token, context.now_ns):
        return [
            f"fencing_token: {proposal.fencing_token}; must be at most {fences.largest(context.now_ns)}: a lease's "
            f"token is Redis's clock in microseconds"
        ]
    if proposal.reset_fences or proposal.concludes:
        return []
    newest = context.fences.get(proposal.origin, 0)
    if context.resumed or proposal.origin == ORIGIN_OPERATOR or proposal.fencing_token >= newest:
        return []
    return [
        f"fencing_token: {proposal.fencing_token} is of an earlier leader; must be at least {newest}, the newest "
        f"token of {Origin.Name(proposal.origin)}"
    ]


def is_local_first(ruleset: Ruleset) -> bool:
    """Returns whether the ruleset, and one on trial, keeps every request in its cluster."""
    return all(
        d.cluster == rule.source_cluster
        for rule in (*ruleset.rules, *ruleset.canary.ruleset.rules)
        for d in rule.destinations
        if d.weight
    )
