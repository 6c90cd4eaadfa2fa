"""A service as it is decided upon: its classes, the rules in force, and what was computed of them."""

from dataclasses import dataclass, field

from spillway_streams.classes import rules
from spillway_streams.classes.compare import Sampled
from spillway_streams.classes.memory import ClassMemory, Names, ServiceMemory
from spillway_streams.classes.modes import Modes
from spillway_streams.classes.rules import Rule

Key = tuple[str, str]  # method, template


@dataclass
class View:
    """live: classes that the rules in force leave as they are; the others are only still remembered."""

    service: str
    now_ms: int
    memory: ServiceMemory
    names: Names
    in_force: list[Rule]
    live: dict[Key, ClassMemory] = field(default_factory=dict)
    samples: dict[Key, Sampled] = field(default_factory=dict)
    modes: dict[Key, Modes] = field(default_factory=dict)

    def rule(self, key: Key) -> Rule | None:
        return rules.match(self.in_force, *key)

    def is_pinned(self, key: Key) -> bool:
        """Whether an operator spoke about the class: as what a pin names, or as what it makes."""
        method, template = key
        return any(
            rule.kind == rules.PINNED
            and (rule.names(method, template) or (rule.becomes == template and rule.method in ("", method)))
            for rule in self.in_force
        )

    def makers(self, key: Key, *kinds: str) -> list[Rule]:
        """The job's rules that make a class of other templates."""
        method, template = key
        return [
            rule
            for rule in self.in_force
            if rule.kind in kinds and (rule.method, rule.becomes) == (method, template) and rule.template
        ]

    def write(
        self, method: str, template: str, becomes: str, kind: str, reason: str, after_s: float = 0.0
    ) -> Rule:
        effective = self.now_ms + rules.DELAY_MS + int(after_s * 1000)
        return Rule(self.now_ms, effective, self.service, method, template, becomes, kind, reason=reason)
