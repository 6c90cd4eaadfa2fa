"""Class rules: which class a template becomes, and which rule is in force when.

They mean the same as in streams/native/core/src/classes/rules.rs, which applies them. There are two
layers, and neither affects the other: the operator's (pinned, unpinned) and the job's (learned,
merged, bounded, retired).
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from spillway_streams.classes import pattern

PINNED, MERGED, LEARNED, BOUNDED = "pinned", "merged", "learned", "bounded"
RETIRED, UNPINNED = "retired", "unpinned"
KINDS = (PINNED, MERGED, LEARNED, BOUNDED, RETIRED, UNPINNED)  # known to the native module as well
_RANK = {kind: i for i, kind in enumerate(KINDS)}
_OPERATOR = (PINNED, UNPINNED)
# A job `exclusive` uses a table of rules until FRESH_MS (8 s, ingest/class_rules.py) after it was
# read. A rule must therefore be readable for that long before it takes effect. Each attempt to
# insert a rule sets its times again, and takes at most 36 s (connection 3, ping 3, two answers of
# 15). Together this is 44 s. The rest is for clocks that differ.
DELAY_MS = 60_000
AUTHOR = "classify"


@dataclass(frozen=True)
class Rule:
    """One row of class_rules. Times are Unix milliseconds."""

    written_at: int
    effective_from: int
    service: str
    method: str  # "": any
    template: str  # a pattern; "": every template
    becomes: str  # a template or OTHER; "" for retired and unpinned
    kind: str
    author: str = AUTHOR
    reason: str = ""
    statistic: float = 0.0
    p_value: float = 1.0
    effect: float = 0.0
    samples: int = 0

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """Identifies a rule: of several rules with one key, the newest one counts."""
        return self.service, self.method, self.template, self.kind in _OPERATOR

    @property
    def order(self) -> tuple[bool, bool, bool, int, list[int], int, str]:
        """Order of precedence: the first rule that matches wins.

        Pinned rules come first. Then a named method precedes any method, and a template precedes
        all templates. Then come fewer `*`, `*` further to the right, the kind, and the text. A
        template that was kept apart from a pattern therefore stays apart when the pattern merges.
        """
        wild = [-i for i, part in enumerate(self.template.split("/")) if part == pattern.ANY]
        return (
            self.kind != PINNED, not self.method, not self.template, len(wild), wild, _RANK[self.kind], self.template,
        )  # fmt: skip

    @property
    def age(self) -> tuple[int, int, str]:
        """Of two rules with one key, the one with the higher age counts."""
        return self.effective_from, _RANK[self.kind], self.becomes

    def names(self, method: str, template: str) -> bool:
        """Whether the rule applies to a template of a method."""
        if self.method not in ("", method):
            return False
        if not self.template:
            return True
        return pattern.matches(pattern.segments(self.template), pattern.segments(template))


COLUMNS = tuple(field.name for field in fields(Rule))


def stamped(rules: Iterable[Rule], now_ms: int) -> list[tuple[Any, ...]]:
    """Returns rows of rules as if written now. The delay until they take effect stays the same."""

    def later(rule: Rule) -> int:
        return now_ms + rule.effective_from - rule.written_at

    return [astuple(replace(rule, written_at=now_ms, effective_from=later(rule))) for rule in rules]


def in_force(rules: Iterable[Rule], at_ms: int) -> list[Rule]:
    """Returns the rules that are in force at a moment, in order of precedence."""
    newest: dict[tuple[str, str, str, bool], Rule] = {}
    for rule in rules:
        if rule.effective_from > at_ms:
            continue
        held = newest.get(rule.key)
        if held is None or held.age <= rule.age:
            newest[rule.key] = rule
    lasting = (rule for rule in newest.values() if rule.kind not in (RETIRED, UNPINNED))
    return sorted(lasting, key=lambda rule: rule.order)


def match(rules: Iterable[Rule], method: str, template: str) -> Rule | None:
    """Returns the rule that determines the class of a template; None if no rule names it.

    `rules`: of one service, in order of precedence.
    """
    return next((rule for rule in rules if rule.names(method, template)), None)


def by_service(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.service, []).append(rule)
    return found
