"""A service as a decision sees it: its classes, the rules in force, and intermediate results."""

from dataclasses import dataclass, field

from spillway_streams.classes import rules
from spillway_streams.classes.compare import Sampled
from spillway_streams.classes.memory import ClassMemory, Names, ServiceMemory
from spillway_streams.classes.modes import Modes
from spillway_streams.classes.rules import Rule

Key = tuple[str, str]  # method, template


@dataclass
class View:
    """The input and intermediate results of one decision.

    `live`: classes that the rules in force leave unchanged. Other classes are only remembered.
    """

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
        """Whether an operator decided about the class: a pin names it, or makes it."""
        method, template = key
        return any(
            rule.kind == rules.PINNED
            and (rule.names(method, template) or (rule.becomes == template and rule.method in ("", method)))
            for rule in self.in_force
        )

    def makers(self, key: Key, *kinds: str) -> list[Rule]:
        """Returns the job's rules of these kinds that turn other templates into the class."""
        method, template = key
        return [
            rule
            for rule in self.in_force
            if rule.kind in kinds and (rule.method, rule.becomes) == (method, template) and rule.template
        ]

    def write(
        self, method: str, template: str, becomes: str, kind: str, reason: str, after_s: float = 0.0
    ) -> Rule:
        """Returns a rule of the job that takes effect `after_s` seconds after DELAY_MS."""
        effective = self.now_ms + rules.DELAY_MS + int(after_s * 1000)
        return Rule(self.now_ms, effective, self.service, method, template, becomes, kind, reason=reason)
