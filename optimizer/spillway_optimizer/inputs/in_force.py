"""The rulesets in force, as the publisher last published them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import hold, names, traffic_class

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights, of_ruleset


@dataclass(frozen=True)
class InForce:
    """What the publisher last published, for all clusters together."""

    rules: Rules
    origin: Origin  # of the newest version among the clusters
    policy: str
    versions: dict[str, int]  # by cluster
    ruleset_id: str
    rulesets: dict[str, Ruleset]  # by cluster
    # Seconds for which the relays of a cluster hold an expired ruleset. A cluster that is absent
    # has the default.
    hold_s: Mapping[str, float] = field(default_factory=dict)
    # Of the rules whose policy is not that of their ruleset.
    policies: Mapping[RuleKey, str] = field(default_factory=dict)

    def policy_of(self, keys: Iterable[RuleKey]) -> str:
        """Returns the policy of these rules: the ruleset's, unless all of them have another one."""
        found = {self.policies.get(key, self.policy) for key in keys}
        return found.pop() if len(found) == 1 else self.policy

    @property
    def version(self) -> int:
        """The newest version among the clusters, 0 without any."""
        return max(self.versions.values(), default=0)

    @property
    def base_version(self) -> int:
        """The version that a proposal of all rules starts from.

        It is the lowest among the clusters, 0 without any.
        """
        return min(self.versions.values(), default=0)

    def changed_by(self, origin: Origin, since: int) -> Rules:
        """Returns the rules that `origin` changed last, after version `since`.

        Rulesets of release 0.1.0 do not say who changed a rule. Their rules count as changed in the
        version of the ruleset, by its origin.
        """
        found = {}
        for ruleset in self.rulesets.values():
            for rule in ruleset.rules:
                c = rule.traffic_class
                class_id = f"{c.service} {c.method} {c.path_template}"
                key = RuleKey(rule.source_cluster, rule.source_service, class_id)
                version, by = rule.changed_version, rule.changed_by
                if not version:
                    version, by = ruleset.version, ruleset.origin
                if key in self.rules and by == origin and version > since:
                    found[key] = self.rules[key]
        return found

    def hold_ms(self, cluster: str) -> int:
        """Milliseconds for which the relays of a cluster hold an expired ruleset."""
        return round(self.hold_s.get(cluster, names.VALUE_HOLD_SECONDS) * 1000)

    def routing(self, now: float) -> Rules:
        """Returns the rules by which relays route at Unix second `now`.

        The rules of an expired ruleset give way to local-first as they do in relays. Where the
        source cluster is not a destination of a rule, the nearest cluster is not known here, and
        the weights stay until the hold ends.
        """
        expired_ms = {c: round(now * 1000) - r.expires_at.ToMilliseconds() for c, r in self.rulesets.items()}
        made = {}
        for key, weights in self.rules.items():
            hold_ms = self.hold_ms(key.source_cluster)
            age_ms = expired_ms.get(key.source_cluster, hold_ms)
            nearest = key.source_cluster if key.source_cluster in weights else None
            held = hold.routed(weights, nearest, key.source_cluster, key.source_service, age_ms, hold_ms)
            if held:
                made[key] = held
        return made


def in_force_of(rulesets: dict[str, Ruleset]) -> InForce | None:
    """Returns what these rulesets, by cluster, put in force. None without any."""
    if not rulesets:
        return None
    newest = max(rulesets.values(), key=lambda ruleset: ruleset.version)
    rules: dict[RuleKey, Weights] = {}
    for ruleset in rulesets.values():
        rules |= of_ruleset(ruleset)
    versions = {cluster: ruleset.version for cluster, ruleset in rulesets.items()}
    policies = {
        RuleKey(
            rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class)
        ): rule.policy
        for ruleset in rulesets.values()
        for rule in ruleset.rules
        if rule.policy
    }
    return InForce(rules, newest.origin, newest.policy, versions, newest.id, rulesets, policies=policies)


def held_as(in_force: InForce | None, boards: Telemetry) -> InForce | None:
    """Adds how long relays hold an expired ruleset, as they report it."""
    return None if in_force is None else replace(in_force, hold_s=boards.hold_s)
