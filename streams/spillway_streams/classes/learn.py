"""Templates learned from requests: a segment position that holds words becomes a variable.

Numbers and hashes are recognised by their form (streams/native/core/src/classes/template.rs). User
names and slugs are recognised only because there are many of them. Consider the templates that
agree up to a position. That position holds words if it has many different segments and new ones
keep coming. Segments with a notable share of the requests stay literal.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spillway_streams.classes import pattern
from spillway_streams.classes.options import Options

Key = tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """One template of one method: segments, requests (adjusted) and number of observed calls."""

    parts: pattern.Segments
    requests: float
    seen: int


@dataclass(frozen=True)
class Learned:
    """A pattern and its class. `words`: number of different templates that led to it.

    An identity (pattern equal to class) keeps a frequent word as a class of its own.
    """

    pattern: str
    becomes: str
    words: int
    seen: int
    unseen: float


@dataclass(frozen=True)
class _Position:
    words: int = 0
    unseen: float = 0.0


def learn(seen: Iterable[Seen], forgotten: int, known: set[Key], options: Options) -> list[Learned]:
    """Returns the learned patterns of one method.

    `forgotten`: number of templates that were dropped because memory was full; `known`: positions
    (the segments before them) that rules in force already treat as words, where a few words are
    enough.
    """
    by_length: dict[int, list[Seen]] = {}
    once = 0
    for item in seen:
        by_length.setdefault(len(item.parts), []).append(item)
        once += item.seen == 1
    found: list[Learned] = []
    # Dropped templates are assumed to be distributed like those that were seen once.
    scale = 1 + forgotten / max(1, once)
    for group in by_length.values():
        _walk(group, (), scale, known, options, _Position(), False, found)
    return found


def _walk(
    group: list[Seen], done: Key, scale: float, known: set[Key], options: Options, best: _Position, apart: bool,
    found: list[Learned],
) -> None:  # fmt: skip
    """Walks depth first over the segments.

    `apart`: the path contains a frequent word at a position that holds words.
    """
    position = len(done)
    if position == len(group[0].parts):
        if pattern.ANY in done or apart:
            found.append(_learned(group, done, best))
        return
    children: dict[str, list[Seen]] = {}
    for item in group:
        children.setdefault(item.parts[position], []).append(item)
    literals = {segment: child for segment, child in children.items() if not pattern.is_variable(segment)}
    unseen = _unseen(literals, scale)
    if not _are_words(literals, unseen, done in known, options):
        for segment, child in children.items():
            _walk(child, (*done, segment), scale, known, options, best, apart, found)
        return
    heavy = _heavy(literals, options)
    for segment in heavy:
        _walk(children[segment], (*done, segment), scale, known, options, best, True, found)
    rest = [item for segment, child in children.items() if segment not in heavy for item in child]
    if rest:
        here = _Position(len(literals), unseen)
        _walk(rest, (*done, pattern.ANY), scale, known, options, here, False, found)


def _unseen(literals: dict[str, list[Seen]], scale: float) -> float:
    """Estimates the share of requests that meet a new word: the share of words met once.

    This is Good and Turing's estimate. `scale`: number of words met once for each one that is still
    remembered.
    """
    counts = [sum(item.seen for item in child) for child in literals.values()]
    total = sum(counts)
    return min(1.0, scale * sum(count == 1 for count in counts) / total) if total else 0.0


def _are_words(literals: dict[str, list[Seen]], unseen: float, known: bool, options: Options) -> bool:
    if known:
        return len(literals) >= 2
    if len(literals) > options.classes_per_service:
        return True  # otherwise most of them would become /other
    seen = sum(item.seen for child in literals.values() for item in child)
    return (
        len(literals) >= options.learn_words
        and seen >= options.learn_samples
        and unseen >= options.learn_unseen
    )


def _heavy(literals: dict[str, list[Seen]], options: Options) -> set[str]:
    requests = {segment: sum(item.requests for item in child) for segment, child in literals.items()}
    least = options.heavy_share * sum(requests.values())
    ranked = sorted(requests, key=lambda segment: (-requests[segment], segment))[: options.max_heavy]
    return {
        segment
        for segment in ranked
        if requests[segment] >= least
        and sum(item.seen for item in literals[segment]) >= options.heavy_samples
    }


def _learned(group: list[Seen], done: Key, position: _Position) -> Learned:
    becomes = pattern.assemble(
        None if part == pattern.ANY or pattern.is_variable(part) else part for part in done
    )
    seen = sum(item.seen for item in group)
    return Learned("/" + "/".join(done), becomes, position.words or len(group), seen, position.unseen)


def known_positions(patterns: Iterable[str]) -> set[Key]:
    """Returns the positions that rules treat as words: the segments before each `*`."""
    known = set()
    for text in patterns:
        parts = pattern.segments(text)
        known |= {parts[:i] for i, part in enumerate(parts) if part == pattern.ANY}
    return known
