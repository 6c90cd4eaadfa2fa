"""Which classes of one method merge: those alike, whose common template Envoy can match.

Only siblings, whose templates are equal except for one segment, can merge. Their common template
has a variable there. Envoy uses the most specific route first, so siblings that do not merge keep
their own routes. At most one group of siblings can have the common template.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from spillway_streams.classes import compare, pattern
from spillway_streams.classes.compare import Comparison, Sampled
from spillway_streams.classes.options import Options

MAX_COMPARISONS = 400  # of one method; the most requested classes come first

Samples = Mapping[str, Sampled]  # by template
Pending = Collection[tuple[str, str]]  # (template, target)


@dataclass(frozen=True)
class Merge:
    """`template` becomes `target`, with the comparison that it rests on."""

    template: str
    target: str
    comparison: Comparison


@dataclass(frozen=True)
class Nearest:
    """The class most similar to a given one, and the comparison of the two."""

    template: str
    comparison: Comparison


def siblings(templates: list[str]) -> dict[str, list[str]]:
    """Returns generic template -> the templates that it would include, at least two.

    The generic template itself may be among them.
    """
    groups: dict[str, set[str]] = {}
    for template in templates:
        for position in range(len(pattern.segments(template))):
            target = pattern.generic(template, position)
            if target != pattern.OTHER:
                groups.setdefault(target, set()).add(template)
    order = {template: i for i, template in enumerate(templates)}
    return {
        target: sorted(group, key=order.__getitem__)
        for target, group in sorted(groups.items())
        if len(group) > 1
    }


def merges(
    templates: list[str], exists: Callable[[str], bool], book: "Book", pending: Pending, turn: int
) -> tuple[list[Merge], int]:
    """Returns the merges found, and the turn at which the next decision continues.

    `templates`: those of one method that may merge, the most requested first; `exists`: whether a
    template is already a class, which must then be part of the group; `pending`: what the last
    decision found; `turn`: the seed at which the last decision stopped.
    """
    groups = siblings(templates)
    taken: set[str] = set()
    done: dict[str, dict[str, Comparison]] = {}
    first, rest = _turns(groups, exists, pending)
    turn = turn % len(rest) if rest else 0
    for n, (target, seed) in enumerate([*first, *rest[turn:], *rest[:turn]]):
        if book.is_full:
            # The seed whose turn was cut short is tried again, unless it was the only one.
            turn += max(1, n - 1 - len(first))
            break
        if target in done or seed in taken:
            continue
        cluster = _grown(seed, [template for template in groups[target] if template not in taken], book)
        if cluster:
            taken.update(cluster)
            done[target] = cluster
    for i, template in enumerate(templates):
        for other in templates[:i]:
            book.compare(template, other)
    return [
        Merge(template, target, comparison)
        for target, cluster in sorted(done.items())
        for template, comparison in cluster.items()
        if template != target
    ], turn


def _turns(
    groups: dict[str, list[str]], exists: Callable[[str], bool], pending: Pending
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns the (target, seed) pairs from which clusters are grown, in two lists.

    The first holds what the last decision found, so that it can be confirmed. The second holds the
    most requested seed of each group, then the second of each, and so on. If the target is already
    a class, only that class can be its seed.
    """
    seeds = {
        target: [template for template in group if template == target or not exists(target)]
        for target, group in groups.items()
    }
    turns = sorted(
        (rank, target, seed) for target, ranked in seeds.items() for rank, seed in enumerate(ranked)
    )
    known = {target for _, target in pending}
    begun: dict[str, str] = {}  # target -> seed
    for _, target, seed in turns:
        if seed == target or (seed, target) in pending:
            begun.setdefault(target, seed)
    first = [(target, seed) for target, seed in begun.items() if target in known]
    return first, [(target, seed) for _, target, seed in turns if (target, seed) not in first]


def _grown(seed: str, group: list[str], book: "Book") -> dict[str, Comparison]:
    """Returns the templates that are alike to the seed and to each other.

    Each comes with its comparison with the ones before it. Empty if there is no other one.
    """
    members: dict[str, Comparison] = {}
    for template in group:
        if template != seed:
            comparison = book.compare(template, seed, *members)
            if comparison is not None and comparison.verdict(book.options) == compare.ALIKE:
                members[template] = comparison
    return {seed: next(iter(members.values())), **members} if members else {}


class Book:
    """The comparisons made, at most MAX_COMPARISONS."""

    def __init__(self, samples: Samples, options: Options) -> None:
        self._samples, self.options = samples, options
        self._made: dict[tuple[str, ...], Comparison] = {}
        self.nearest: dict[str, Nearest] = {}
        self.used = 0

    @property
    def is_full(self) -> bool:
        return self.used >= MAX_COMPARISONS

    def compare(self, template: str, *pool: str) -> Comparison | None:
        """Compares a class with a pool of classes; None if the bound is reached."""
        key = (template, *pool)
        found = self._made.get(key) or (self._made.get(key[::-1]) if len(pool) == 1 else None)
        if found is None and not self.is_full:
            self.used += 1
            others = [self._samples[member] for member in pool]
            other = others[0] if len(others) == 1 else compare.pooled(others)
            found = self._made[key] = compare.compare(other, self._samples[template])
            if len(pool) == 1:
                self._note(template, pool[0], found)
                self._note(pool[0], template, found)
        return found

    def _note(self, template: str, other: str, comparison: Comparison) -> None:
        held = self.nearest.get(template)
        if not comparison.distance_error < 1:
            return  # the two were never at the same load: nothing is known
        if held is None or comparison.farness(self.options) < held.comparison.farness(self.options):
            self.nearest[template] = Nearest(other, comparison)


def holm(p_values: list[float], tests: int) -> list[float]:
    """Adjusts p-values for several tests at once (Holm 1979).

    Returns one value for each p-value. `tests` may be higher than their number.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (max(tests, len(order)) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
