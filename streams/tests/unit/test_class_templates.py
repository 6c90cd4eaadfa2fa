"""Templates of traffic classes: words are learned, their number is bounded, rules have an order."""

import numpy as np
import pytest
from simulated import SERVICE, Kind, batches, decide, exponential, memory
from spillway_streams.classes import learn, pattern, rules
from spillway_streams.classes.memory import Memory
from spillway_streams.classes.options import Options
from spillway_streams.process.counters import Counters

OPTIONS = Options()


def _templates(memory) -> set[str]:
    return {template for _, template in memory.services[SERVICE].classes}


# Words


def _words(n: int, count: int, rng: np.random.Generator, prefix: str = "/users/") -> list[learn.Seen]:
    """Requests for `count` calls over n names; names of a lower rank are more frequent."""
    share = 1 / np.arange(1, n + 1)
    names, seen = np.unique(rng.choice(n, count, p=share / share.sum()), return_counts=True)
    words = ["".join(chr(97 + int(d)) for d in f"{i:05d}") for i in names]
    return [
        learn.Seen(pattern.segments(prefix + word), float(k), int(k))
        for word, k in zip(words, seen, strict=True)
    ]


def test_words_become_a_variable_and_real_endpoints_stay():
    rng = np.random.default_rng(1)
    seen = _words(10_000, 20_000, rng)
    seen += [learn.Seen(("users", "me"), 5000.0, 5000), learn.Seen(("health",), 100.0, 100)]
    seen += [learn.Seen((*word.parts, "orders"), word.requests, word.seen) for word in _words(500, 3000, rng)]
    found = {rule.pattern: rule.becomes for rule in learn.learn(seen, 0, set(), OPTIONS)}
    assert found["/users/*"] == "/users/{id}" and found["/users/*/orders"] == "/users/{id}/orders"
    assert found["/users/me"] == "/users/me" and "/health" not in found
    assert len(found) <= 3 + 2 * OPTIONS.max_heavy


def test_a_closed_set_of_endpoints_is_not_words():
    """Eighty endpoints; the rarest is a fiftieth as frequent as the first."""
    rng = np.random.default_rng(2)
    share = np.linspace(1, 0.02, 80)
    for count in (40, 500, 5000, 100_000):
        seen = rng.multinomial(count, share / share.sum())
        templates = [
            learn.Seen((f"page{chr(97 + i // 26)}{chr(97 + i % 26)}",), float(k), int(k))
            for i, k in enumerate(seen)
            if k
        ]
        assert learn.learn(templates, 0, set(), OPTIONS) == [], count


def test_names_forgotten_elsewhere_make_no_words_of_endpoints():
    """User names overflowed the memory of the method. Each endpoint was requested 100 times."""
    endpoints = [
        learn.Seen(("api", f"page{chr(97 + i // 26)}{chr(97 + i % 26)}"), 100.0, 100) for i in range(40)
    ]
    names = _words(1500, 8000, np.random.default_rng(4))
    found = learn.learn([*endpoints, *names], 5000, set(), OPTIONS)
    assert "/users/*" in {rule.pattern for rule in found}
    assert all(rule.pattern.startswith("/users/") and rule.unseen <= 1 for rule in found)


def test_ten_thousand_words_are_bounded_in_memory_and_in_classes():
    """Whatever the words are, the rules leave no more classes than allowed."""
    made = memory([], 0)
    rng = np.random.default_rng(3)
    kinds = [
        Kind(f"/{word.parts[0]}/{word.parts[1]}", exponential(5), word.seen)
        for word in _words(10_000, 30_000, rng)
    ]
    calls, _ = batches(kinds, 4)
    for part in np.array_split(np.arange(len(calls["trace_id"])), 20):
        made.add_calls({name: column[part] for name, column in calls.items()})
    assert len(made.services[SERVICE].classes) <= 2000
    written, _ = decide(made, [], OPTIONS)
    force = rules.in_force(written, 2_000_000)
    classes = {rule.becomes if (rule := rules.match(force, "GET", t)) else t for t in _templates(made)}
    assert len(classes) <= OPTIONS.max_heavy + 1 and "/users/{id}" in classes


def test_too_many_classes_are_bounded_for_a_lease():
    """60 endpoints with room for 40: the most requested are named, and the rest becomes /other.

    When the lease ends nothing is bounded, so that all are observed again.
    """
    kinds = [Kind(f"/{'abcdef'[i % 6]}/{chr(97 + i // 6)}x", exponential(5), 100 - i) for i in range(60)]
    made = memory(kinds, 5)
    options = Options(classes_per_service=40, lease=100)
    written, _ = decide(made, [], options)
    assert len(written) == 42
    now = rules.in_force(written, written[0].effective_from)
    becomes = {t: rules.match(now, "GET", t).becomes for t in _templates(made)}
    named = {t for t, b in becomes.items() if b == t}
    assert named == {kind.template for kind in kinds[:40]} and set(becomes.values()) - named == {"/other"}
    later = rules.in_force(written, written[0].effective_from + 100_000)
    assert {rule.template for rule in later} == named  # named classes stay, the rest is observed


_LEASE_ENDS_S = 10_000


def _leased(names: list[str]) -> list[rules.Rule]:
    bounded = [_rule(name, name, "bounded", method="") for name in names]
    end = _rule("", "", "retired", _LEASE_ENDS_S * 1000, method="")
    return [*bounded, _rule("", "/other", "bounded", method=""), end]


def test_what_became_frequent_gets_in_when_a_lease_ends():
    """A frequent new class takes the place of a named one.

    Forty named classes are remembered for 15 minutes at one request per second each. Two new ones
    have been observed for 30 s; the one at ten per second takes the place. Nothing is decided until
    then.
    """
    names = [f"/{'abcdef'[i % 6]}/{chr(97 + i // 6)}x" for i in range(40)]
    made, options = Memory(1800, Counters()), Options(classes_per_service=40)
    for at, kinds in (
        (_LEASE_ENDS_S - 900, [Kind(name, exponential(5), 91) for name in names]),
        (_LEASE_ENDS_S - 1, [Kind("/other", exponential(5), 900)]),
        (_LEASE_ENDS_S, [Kind("/new/fast", exponential(5), 30), Kind("/new/rare", exponential(5), 1)]),
    ):
        made.turn(at)
        made.add_calls(batches(kinds, 3, weight=10.0)[0])
    history = _leased(names)
    for early in (-30, 10):
        assert decide(made, history, options, now_ms=(_LEASE_ENDS_S + early) * 1000)[0] == []
    written, _ = decide(made, history, options, now_ms=(_LEASE_ENDS_S + 31) * 1000)
    named = {rule.template for rule in written if rule.template and rule.becomes == rule.template}
    assert named == {"/new/fast"} and [rule.kind for rule in written if rule.template in names] == ["retired"]


def test_the_end_of_a_lease_alone_begins_no_other():
    """Before anything else is observed there are the named classes and /other: not too many."""
    names = [f"/{chr(97 + i)}" for i in range(5)]
    made = memory([Kind(name, exponential(5), 50) for name in [*names, "/other"]], 3)
    options = Options(classes_per_service=5)
    assert decide(made, _leased(names), options, now_ms=(_LEASE_ENDS_S + 60) * 1000)[0] == []


def test_classes_of_every_method_count():
    """Of 40 templates with three methods each, 13 can be named."""
    kinds = [
        Kind(f"/{'abcdef'[i % 6]}/{chr(97 + i // 6)}x", exponential(5), 100 - i, method=method)
        for i in range(40)
        for method in ("GET", "PUT", "DELETE")
    ]
    made = memory(kinds, 5)
    written, _ = decide(made, [], Options(classes_per_service=40))
    force = rules.in_force(written, written[0].effective_from)
    classes = {
        (method, becomes)
        for method, template in made.services[SERVICE].classes
        if (becomes := rules.match(force, method, template).becomes) != "/other"
    }
    assert len(classes) == 39


# Rules and patterns


def _rule(template: str, becomes: str, kind: str, at: int = 0, method: str = "GET") -> rules.Rule:
    return rules.Rule(at, at, SERVICE, method, template, becomes, kind)


def test_precedence_of_rules():
    known = [
        _rule("", "/other", "bounded", method=""), _rule("/a/*", "/a/{id}", "learned"), _rule("/a/b", "/a/b", "learned"),
        _rule("/a/c", "/a/{m}", "merged"), _rule("/a/*", "/a/{p}", "pinned", method="PUT"),
        _rule("/u/me", "/u/me", "learned"), _rule("/u/*", "/{id}/{id2}", "merged"),
    ]  # fmt: skip
    force = rules.in_force(known, 1)
    expected = {
        "/a/b": "/a/b",
        "/a/c": "/a/{m}",
        "/a/d": "/a/{id}",
        "/a/{id}": "/a/{id}",
        "/u/me": "/u/me",  # kept apart from a pattern, even when the pattern merges
        "/u/x": "/{id}/{id2}",
        "/x": "/other",
        "/a": "/other",
    }
    assert {t: rules.match(force, "GET", t).becomes for t in expected} == expected
    assert rules.match(force, "PUT", "/a/c").becomes == "/a/{p}"


def test_the_newest_rule_of_a_layer_counts_from_its_time_on():
    """Rules that the job writes or ends never affect a pin."""
    known = [
        _rule("/a", "/x", "pinned", 10), _rule("/a", "/y", "learned", 20), _rule("/a", "", "retired", 30),
        _rule("/a", "", "unpinned", 40), _rule("/a", "/z", "merged", 50),
    ]  # fmt: skip
    expected = {5: None, 15: "/x", 25: "/x", 35: "/x", 45: None, 55: "/z"}
    for at, becomes in expected.items():
        found = rules.match(rules.in_force(known[::-1], at), "GET", "/a")
        assert (found.becomes if found else None) == becomes, at


def test_what_a_class_covers():
    assert (
        pattern.covers("/a/{id}", "/a/*") and pattern.covers("/a/{id}", "/a/b") and pattern.covers("/a", "/a")
    )
    assert (
        not pattern.covers("/a/b", "/a/*")
        and not pattern.covers("/a/{id}", "/b/*")
        and not pattern.covers("/a", "/a/b")
    )
    assert pattern.generic("/a/{x}/c", 2) == "/a/{id}/{id2}"
    assert pattern.assemble([None] * 6) == pattern.OTHER


@pytest.mark.parametrize(
    "text", ["a", "/a b", "/a/*x", "/{a}{b}", "/" + "a" * 300, "/{a}/{b}/{c}/{d}/{e}/{f}"]
)
def test_impossible_patterns_are_refused(text):
    with pytest.raises(pattern.PatternError):
        pattern.check(text, wildcards=True)
