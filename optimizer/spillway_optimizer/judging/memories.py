"""A leader's memory by application, while the call graph changes. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from spillway.v1.ruleset_pb2 import Rule
from spillway_contracts import traffic_class

from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import Memory
from spillway_optimizer.problem.rules import RuleKey, Rules

REST = ""  # name for rules that belong to no application
_V = TypeVar("_V")


@dataclass(frozen=True)
class Parting:
    """Maps each rule to its application.

    That is the application of the caller's service or, if the caller has none, of the callee's.
    """

    of_service: Mapping[str, str]

    @classmethod
    def of(cls, services: Mapping[str, Iterable[str]]) -> "Parting":
        """Builds the mapping from `services`, the services of each application."""
        return cls({service: name for name, some in services.items() for service in some})

    def after(self, before: "Parting", rules: Iterable[RuleKey]) -> "Parting":
        """Returns this mapping, extended by callers of `rules` that have no application now.

        They keep the application that they had in `before`.
        """
        callers = {key.source_service for key in rules}
        absent = {service: name for service, name in before.of_service.items() if service in callers}
        return Parting({**absent, **self.of_service})

    def name(self, key: RuleKey) -> str:
        """Returns the name of a rule's application, or REST."""
        callee = key.class_id.partition(" ")[0]
        return self.of_service.get(key.source_service) or self.of_service.get(callee, REST)

    def split(self, rules: Mapping[RuleKey, _V] | None) -> Mapping[str, Mapping[RuleKey, _V]]:
        """Splits rules, or other values by rule, by application."""
        parts: dict[str, dict[RuleKey, _V]] = {}
        for key, value in (rules or {}).items():
            parts.setdefault(self.name(key), {})[key] = value
        return parts

    def memories(self, known: Mapping[str, Memory], names: Iterable[str]) -> Mapping[str, Memory]:
        """Converts `known`, memories by the previous applications, to memories of `names`.

        An application whose memory is assembled from several parts starts without pending changes.
        """
        parts = {name: _split(self, memory) for name, memory in known.items()}
        found = {}
        for name in names:
            known_parts = [(m, parts[old][name]) for old, m in known.items() if name in parts[old]]
            found[name] = _joined(known_parts) if known_parts else known.get(name, Memory())
        return found

    def in_force(self, whole: InForce | None, name: str, parts: Mapping[str, Rules]) -> InForce | None:
        """Restricts `whole` to one application. `parts` is the result of `split` for all rules."""
        if whole is None:
            return None
        rules = parts.get(name, {})
        return replace(whole, rules=rules, policy=whole.policy_of(rules))


def _split(parting: Parting, memory: Memory) -> Mapping[str, Memory]:
    """Splits a memory by application. It stays whole if all of its rules belong to one."""
    proposed, intended = parting.split(memory.proposed), parting.split(memory.intended)
    names = proposed.keys() | intended.keys()
    if len(names) == 1:
        return {next(iter(names)): memory}
    return {
        name: Memory(memory.policy, proposed.get(name, {}), intended.get(name, {}), memory.published_at)
        for name in names
    }


def _joined(parts: list[tuple[Memory, Memory]]) -> Memory:
    """Joins parts of several memories.

    The first part decides the policy. Parts of another policy are dropped.
    """
    first = parts[0][1]
    same = [part for _, part in parts if part.policy == first.policy]
    if len(same) == 1:
        return first
    return Memory(
        first.policy,
        {key: rule for part in same for key, rule in (part.proposed or {}).items()},
        {key: rule for part in same for key, rule in (part.intended or {}).items()},
        min(part.published_at for part in same),
    )


def rules_by_key(in_force: InForce | None, now: float) -> Mapping[RuleKey, Rule]:
    """Returns the rules that relays route by, with their predictions.

    Rules of expired rulesets that relays no longer hold are left out. `now`: Unix seconds.
    """
    if in_force is None:
        return {}
    alive = [
        ruleset
        for cluster, ruleset in in_force.rulesets.items()
        if ruleset.expires_at.ToMilliseconds() + in_force.hold_ms(cluster) > now * 1000
    ]
    return {
        RuleKey(r.source_cluster, r.source_service, traffic_class.format_id(r.traffic_class)): r
        for ruleset in alive
        for r in ruleset.rules
    }
