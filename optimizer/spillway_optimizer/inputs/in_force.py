"""The rulesets in force, as the publisher last published them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import hold, names

from spillway_optimizer.problem.rules import RuleKey, Rules


@dataclass(frozen=True)
class InForce:
    """What the publisher last published, all clusters together."""

    rules: Rules
    origin: Origin  # of the newest version among the clusters
    policy: str
    versions: dict[str, int]  # by cluster
    ruleset_id: str
    rulesets: dict[str, Ruleset]  # by cluster
    # How long the relays of a cluster hold an expired ruleset, in seconds; where it is absent, the default.
    hold_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return max(self.versions.values(), default=0)

    @property
    def base_version(self) -> int:
        """What a proposal of all rules starts from: the lowest of the clusters, 0 without any."""
        return min(self.versions.values(), default=0)

    def changed_by(self, origin: Origin, since: int) -> Rules:
        """Rules that this origin changed last, after version `since`. What 0.1.0 published counts as changed in its
        version by its ruleset's origin."""
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
        return round(self.hold_s.get(cluster, names.VALUE_HOLD_SECONDS) * 1000)

    def routing(self, now: float) -> Rules:
        """The rules that relays route by. Those of an expired ruleset give way to local-first, as relays hold them.
        Where the source cluster is no destination, the nearest is not known here: the weights stay."""
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
