"""The version that a proposal starts from: conflicts, partial proposals, changes of rules.

Pure. Every rule in force names the version in which its weights last changed, and the origin that
changed them (`changed_version`, `changed_by`). A proposal names the version that its proposer had
read (`base_version`; 0: nothing was in force). It is refused when it would change a rule that
another origin has changed since then. The proposer must then read the rulesets in force and propose
again.
"""

from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_PAPA, Origin, Rule, Ruleset

from spillway_contracts import slices, traffic_class

RuleKey = tuple[str, str, str]  # source cluster, source service, class id


def rule_key(rule: Rule) -> RuleKey:
    return rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class)


def positive(rule: Rule | None) -> dict[str, int]:
    """Returns the weights above 0 by destination; empty without a rule."""
    return {d.cluster: d.weight for d in rule.destinations if d.weight} if rule else {}


def partial_problems(proposal: Ruleset, in_force: Mapping[str, Ruleset]) -> list[str]:
    """Returns why a partial proposal cannot be completed."""
    if proposal.partial and not in_force:
        return ["partial: true; must be false while no ruleset is in force"]
    return []


def completed(proposal: Ruleset, in_force: Mapping[str, Ruleset]) -> Ruleset:
    """Returns the complete ruleset that a partial proposal asks for.

    The proposal's rules replace those of the same key, and its classes are added. All else stays as
    it is in force. The expiry is the earliest one in force: changing a part must not make the rest
    live longer.
    """
    if not proposal.partial:
        return proposal
    whole = slices.join(sorted(in_force.values(), key=lambda ruleset: ruleset.version))
    for field in ("version", "denials", "reset_fences", "canary", "concludes"):
        whole.ClearField(field)
    for field in ("id", "origin", "fencing_token", "reason"):
        setattr(whole, field, getattr(proposal, field))
    whole.created_at.CopyFrom(proposal.created_at)
    whole.expires_at.FromNanoseconds(min(r.expires_at.ToNanoseconds() for r in in_force.values()))
    replaced = {rule_key(rule) for rule in proposal.rules}
    rules = [rule for rule in whole.rules if rule_key(rule) not in replaced]
    del whole.rules[:]
    whole.rules.extend([*rules, *proposal.rules])
    known = {traffic_class.format_id(c): c for c in [*whole.traffic_classes, *proposal.traffic_classes]}
    del whole.traffic_classes[:]
    whole.traffic_classes.extend(known[class_id] for class_id in sorted(known))
    return whole


def conflicts(proposal: Ruleset, in_force: Mapping[str, Ruleset], now_ns: int) -> list[str]:
    """Returns a problem for each rule that others changed since, and the proposal would change.

    "Since" means after the proposal's base version. An operator's proposal conflicts only with
    another operator's change.
    """
    alive = [r for _, r in sorted(in_force.items()) if r.expires_at.ToNanoseconds() > now_ns]
    operator = proposal.origin == ORIGIN_OPERATOR
    newest = max((ruleset.version for ruleset in in_force.values()), default=0)
    if not proposal.HasField("base_version"):
        if alive and not operator and (proposal.partial or proposal.origin == ORIGIN_PAPA):
            return [
                f"base_version: absent; must be the version in force that the proposer read; {newest} is in force"
            ]
        return []
    if newest and not proposal.base_version:
        return [f"base_version: 0; version {newest} is in force: read it and propose again"]
    wanted = {rule_key(rule): rule for rule in proposal.rules}
    found = []
    for ruleset in alive:
        for rule in ruleset.rules:
            key = rule_key(rule)
            if proposal.partial and key not in wanted:
                continue
            version, by = changed(rule, ruleset)
            others = by == ORIGIN_OPERATOR if operator else by != proposal.origin
            if version > proposal.base_version and others and positive(wanted.get(key)) != positive(rule):
                found.append(
                    f"base_version: {proposal.base_version}; the rule of {key[1]!r} in {key[0]!r} for {key[2]!r} was "
                    f"changed in version {version} by {Origin.Name(by)}: read version {newest} and propose again"
                )
    if proposal.partial and not operator:
        there = {rule_key(rule) for ruleset in alive for rule in ruleset.rules}
        found += [
            f"base_version: {proposal.base_version}; the rule of {key[1]!r} in {key[0]!r} for {key[2]!r} is no longer "
            f"in force"
            for key in wanted
            if key not in there
        ]
    return found


def changed(rule: Rule, ruleset: Ruleset) -> tuple[int, Origin]:
    """Returns version and origin of the rule's last change.

    Rules published by 0.1.0 do not have them; then those of the ruleset are returned.
    """
    if rule.changed_version:
        return rule.changed_version, rule.changed_by
    return ruleset.version, ruleset.origin


def stamp(ruleset: Ruleset, in_force: Mapping[str, Ruleset], version: int) -> None:
    """Sets in every rule, in place, the version and origin of its last change.

    They are the present ones if the rule's weights differ from those in force, else the earlier
    ones.
    """
    before = {rule_key(rule): (rule, part) for part in in_force.values() for rule in part.rules}
    for rule in ruleset.rules:
        earlier = before.get(rule_key(rule))
        rule.changed_version, rule.changed_by = version, ruleset.origin
        if earlier is not None and positive(earlier[0]) == positive(rule):
            rule.changed_version, rule.changed_by = changed(*earlier)
    ruleset.ClearField("base_version")
    ruleset.ClearField("partial")
