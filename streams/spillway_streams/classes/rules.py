"""Class rules: what makes a class of a template, and which rule is in force when.

The same language as streams/native/core/src/classes.rs, which applies them. Two layers never touch each other:
the operator's (pinned, unpinned) and the job's (learned, merged, bounded, retired).
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace

from spillway_streams.classes import pattern

PINNED, MERGED, LEARNED, BOUNDED = "pinned", "merged", "learned", "bounded"
RETIRED, UNPINNED = "retired", "unpinned"
KINDS = (PINNED, MERGED, LEARNED, BOUNDED, RETIRED, UNPINNED)  # the native module knows these
_RANK = {kind: i for i, kind in enumerate(KINDS)}
_OPERATOR = (PINNED, UNPINNED)
# A job `exclusive` decides up to FRESH_MS (8 s, ingest/class_rules.py) past the time at which it read the table, so
# a rule must be readable that long before it takes effect. It is stamped anew for each attempt to insert it, which
# takes at most 36 s (connection 3, ping 3, two answers of 15): 44 s. The rest is for clocks that differ.
DELAY_MS = 60_000
AUTHOR = "classify"


@dataclass(frozen=True)
class Rule:
    """One row of class_rules; times are unix milliseconds."""

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
        """Of several rules with one key the newest counts."""
        return self.service, self.method, self.template, self.kind in _OPERATOR

    @property
    def order(self) -> tuple:
        """The first match in this order wins: pinned; a named method before any; a template before all; fewer `*`;
        `*` further to the right; kind; text. What was kept apart from a pattern stays so when the pattern merges."""
        wild = [-i for i, part in enumerate(self.template.split("/")) if part == pattern.ANY]
        return (
            self.kind != PINNED, not self.method, not self.template, len(wild), wild, _RANK[self.kind], self.template,
        )  # fmt: skip

    @property
    def age(self) -> tuple:
        """Of two rules with one key the one that is more counts."""
        return self.effective_from, _RANK[self.kind], self.becomes

    def names(self, method: str, template: str) -> bool:
        if self.method not in ("", method):
            return False
        if not self.template:
            return True
        return pattern.matches(pattern.segments(self.template), pattern.segments(template))


COLUMNS = tuple(field.name for field in fields(Rule))


def stamped(rules: Iterable[Rule], now_ms: int) -> list[tuple]:
    """Rows of rules as if written now; they take effect as long after that as they were to."""
    later = lambda rule: now_ms + rule.effective_from - rule.written_at  # noqa: E731
    return [astuple(replace(rule, written_at=now_ms, effective_from=later(rule))) for rule in rules]


def in_force(rules: Iterable[Rule], at_ms: int) -> list[Rule]:
    """The rules that count at a moment, in order of precedence."""
    newest: dict[tuple, Rule] = {}
    for rule in rules:
        if rule.effective_from > at_ms:
            continue
        held = newest.get(rule.key)
        if held is None or held.age <= rule.age:
            newest[rule.key] = rule
    lasting = (rule for rule in newest.values() if rule.kind not in (RETIRED, UNPINNED))
    return sorted(lasting, key=lambda rule: rule.order)


def match(rules: Iterable[Rule], method: str, template: str) -> Rule | None:
    """The rule, of one service's rules in order of precedence, that makes the class of a template."""
    return next((rule for rule in rules if rule.names(method, template)), None)


def by_service(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.service, []).append(rule)
    return found
