"""The ruleset on trial, and which proposals wait meanwhile. Pure.

A trial is a version of its own. It carries the rules in force unchanged, and beside them the
proposed ruleset, by which only the elected Envoys route. So whatever ends it, all others have kept
their weights. Everything about it is in the bucket. trying.py begins one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Rule, Ruleset
from spillway_contracts import slices
from spillway_contracts.bases import RuleKey, rule_key
from spillway_contracts.guardrails import CANARY_GRACE_S

from spillway_publisher.rules import held
from spillway_publisher.rules.checks import SECOND, Context


@dataclass(frozen=True)
class Trial:
    """The newest version in force, while it is a trial.

    `whole`: its slices joined. `complete`: every cluster has it. `clusters`: those whose Envoys
    take part.
    """

    whole: Ruleset
    complete: bool
    clusters: frozenset[str]

    @property
    def version(self) -> int:
        return self.whole.version

    @property
    def decided_at_ns(self) -> int:
        """When it is to be concluded: before relays end it by themselves. Unix nanoseconds."""
        until: int = self.whole.canary.until.ToNanoseconds()
        return until - CANARY_GRACE_S * SECOND

    @property
    def changed(self) -> frozenset[RuleKey]:
        """The rules whose weights it changes."""
        return changed(self.whole.rules, self.whole.canary.ruleset.rules)


def on(in_force: Mapping[str, Ruleset], clusters: Collection[str]) -> Trial | None:
    """Returns the trial of the newest version in force, or None. `clusters`: the topology's."""
    newest = max((ruleset.version for ruleset in in_force.values()), default=0)
    parts = [part for _, part in sorted(in_force.items()) if part.version == newest]
    if not parts or not all(part.HasField("canary") for part in parts):
        return None
    whole = slices.join(parts)
    return Trial(whole, len(parts) == len(clusters), frozenset(whole.canary.clusters or clusters))


def problems(proposal: Ruleset, context: Context) -> list[str]:
    """Returns why the proposal must wait for the end of a trial, or cannot end one.

    Operators need not wait. Their rulesets, also the kill switch's, end a trial.
    """
    if context.resumed:
        return []
    trial = on(context.in_force, [cluster.name for cluster in context.topology.clusters])
    if proposal.concludes:
        if trial is None or trial.version != proposal.concludes:
            return [f"concludes: {proposal.concludes}; must be the version that is on trial now"]
        return []
    if trial is None or proposal.origin == ORIGIN_OPERATOR:
        return []
    until = datetime.fromtimestamp(trial.decided_at_ns / SECOND, UTC)
    return [
        f"canary: version {trial.version} is on trial until {until:%H:%M:%S} UTC: propose again afterwards"
    ]


def changed(before: Collection[Rule], after: Collection[Rule]) -> frozenset[RuleKey]:
    """Returns the rules whose weights differ. Without a rule: local-first."""
    old, new = ({rule_key(rule): rule for rule in rules} for rules in (before, after))
    keys = old.keys() | new.keys()
    return frozenset(k for k in keys if held.routed(old.get(k), k) != held.routed(new.get(k), k))
