"""Traffic classes: similar ones merge, others do not, modes are flagged, samples are weighted."""

import numpy as np
import pytest
from simulated import SERVICE, Kind, batches, decide, exponential, lognormal, memory
from spillway_streams.batches.strings import Strings
from spillway_streams.classes import compare, describe, merge, modes, rules, sample
from spillway_streams.classes.compare import ALIKE, DIFFERENT, Sampled, sampled
from spillway_streams.classes.decide import Decider
from spillway_streams.classes.options import Options
from spillway_streams.classes.view import View

SEEDS = range(25)
OPTIONS = Options()


def _pair(first: Kind, second: Kind, seed: int) -> compare.Comparison:
    left, right = memory([first, second], seed).services[SERVICE].classes.values()
    return compare.compare(sampled(left), sampled(right))


def _verdicts(first: Kind, second: Kind) -> list[str]:
    return [_pair(first, second, seed).verdict(OPTIONS) for seed in SEEDS]


# Power and false positives, over seeds, at 1500 calls each. Alike classes are found alike in at
# least 95 % of the runs, and different in none. A class half as slow again is never found alike,
# and is found different in at least 95 %.


def test_equal_classes_are_found_alike():
    """Even if one class is requested at higher load, and is therefore slower on average."""
    same = _verdicts(Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5)))
    assert same.count(ALIKE) >= 0.95 * len(same) and DIFFERENT not in same
    shifted = _verdicts(Kind("/a/b", exponential(5), load=(1, 9)), Kind("/a/c", exponential(5), load=(4, 13)))
    assert shifted.count(ALIKE) >= 0.8 * len(shifted) and shifted.count(DIFFERENT) <= 1


def test_different_times_are_found_and_never_called_alike():
    found = _verdicts(Kind("/a/b", exponential(5)), Kind("/a/c", exponential(7.5)))
    assert found.count(DIFFERENT) >= 0.95 * len(found) and ALIKE not in found


def test_p_values_hold():
    """For equal classes about one comparison in 100 has p < 0.01, with few and with many calls."""
    n = [
        _pair(Kind("/a/b", exponential(5), 200), Kind("/a/c", exponential(5), 900), s).p_value
        for s in range(150)
    ]
    assert np.mean(np.array(n) < 0.01) <= 0.03 and np.mean(np.array(n) < 0.1) <= 0.16


def test_a_small_difference_stays_small_however_many_calls():
    """3 % over 20 000 calls each is significant in any test, but no reason for two classes."""
    found = _pair(Kind("/a/b", lognormal(5, 0.2), 20_000), Kind("/a/c", lognormal(5.15, 0.2), 20_000), 1)
    assert found.verdict(OPTIONS) == ALIKE


def test_a_rare_slow_path_is_a_difference_though_the_median_is_the_same():
    def slow(rng, inside):
        return 5 * np.where(rng.random(len(inside)) < 0.05, 20, 1) * rng.uniform(0.9, 1.1, len(inside))

    found = [
        _pair(Kind("/a/b", lognormal(5, 0.06)), Kind("/a/c", slow), seed).verdict(OPTIONS) for seed in SEEDS
    ]
    assert ALIKE not in found


def test_other_children_are_a_difference():
    kind = Kind("/a/b", exponential(5), children={"stock GET /x": 1.0})
    for children in ({"stock GET /x": 0.5}, {"stock GET /y": 1.0}, {}):
        found = _pair(kind, Kind("/a/c", exponential(5), children=children), 3)
        assert found.verdict(OPTIONS) == DIFFERENT and found.child_difference >= 0.4
    same = _pair(kind, Kind("/a/c", exponential(5), children={"stock GET /x": 1.0}), 3)
    assert same.verdict(OPTIONS) == ALIKE and same.child_difference == 0


def test_few_calls_decide_nothing():
    found = _verdicts(Kind("/a/b", exponential(5), 60), Kind("/a/c", exponential(5), 60))
    assert ALIKE not in found


def test_one_mode_is_not_two():
    """Exponential, Erlang, log-normal, constant and M/M/1-like times: no false flag in any run."""
    shapes = (
        exponential(5), lognormal(5, 0.3), lognormal(5, 1.0),
        lambda rng, inside: rng.gamma(3, 2, len(inside)), lambda rng, inside: rng.gamma(inside, 2),
        lambda rng, inside: 3 + rng.exponential(2, len(inside)), lambda rng, inside: np.full(len(inside), 3.0),
    )  # fmt: skip
    for times in shapes:
        for seed in range(15):
            [kept] = memory([Kind("/a", times)], seed).services[SERVICE].classes.values()
            seen = sampled(kept)
            assert not modes.find(seen.ms, seen.stratum, seen.weight, OPTIONS).clear


def _mixture(rng: np.random.Generator, inside: np.ndarray) -> np.ndarray:
    """A third of the calls take five times as long."""
    return (
        4
        * np.where(rng.random(len(inside)) < 1 / 3, 5, 1)
        * np.exp(rng.normal(0, 0.25, len(inside)))
        * (1 + 0.2 * inside)
    )


def _is_slow(ms: np.ndarray) -> np.ndarray:
    return ms > np.quantile(ms, 2 / 3)


@pytest.mark.parametrize(
    ("attribute", "value", "more"),
    [
        ("source_service", "batch", lambda ms: {"source_service": np.where(_is_slow(ms), "batch", "web")}),
        ("source_cluster", "c2", lambda ms: {"source_cluster": np.where(_is_slow(ms), "c2", "c1")}),
        ("request_bytes", "<= ", lambda ms: {"request_bytes": np.where(_is_slow(ms), 50_000, 200)}),
        ("response_bytes", "<= ", lambda ms: {"response_bytes": np.where(_is_slow(ms), 90_000, 10)}),
        ("status", "200", lambda ms: {"status": np.where(_is_slow(ms), 200, 404)}),
        ("", "", lambda ms: {}),
    ],
)
def test_two_modes_are_flagged_with_what_would_split_them(attribute, value, more):
    made = memory([Kind("/a", _mixture, more=lambda rng, ms: more(ms))], 5)
    _, found = decide(made, [], OPTIONS)
    finding = found[f"{SERVICE} GET /a"]
    assert (finding.verdict, finding.modes, finding.split_attribute) == ("flagged", 2, attribute)
    assert finding.split_value.startswith(value)
    assert finding.mode_high_ms / finding.mode_low_ms == pytest.approx(5, rel=0.2)
    assert finding.mode_high_share == pytest.approx(1 / 3, abs=0.05)


def test_a_split_by_child_tree_is_found():
    """The slow calls are those that call the archive."""
    made = memory([Kind("/a", _mixture, 3000)], 6)
    calls, _ = batches([Kind("/a", _mixture, 3000)], 6)
    slow = calls["exclusive_us"] > np.quantile(calls["exclusive_us"], 2 / 3)
    ids = calls["trace_id"][slow]
    made.add_edges({
        "trace_id": ids, "span_id": np.array([f"{i:016x}" for i in range(len(ids))], object),
        "source_class": Strings.of([f"{SERVICE} GET /a"] * len(ids)),
        "class": Strings.of(["archive GET /"] * len(ids)), "adjusted_count": np.ones(len(ids)),
    })  # fmt: skip
    _, found = decide(made, [], OPTIONS)
    assert found[f"{SERVICE} GET /a"].split_attribute == "child archive GET /"


def test_a_split_by_child_is_found_where_a_request_makes_many_calls():
    """The sample of calls then has more traces than that of the children.

    Traces whose children are unknown must not count as traces that call nobody.
    """
    callees = {f"stock GET /{chr(97 + i)}": 1.0 for i in range(12)}
    calls, edges = batches([Kind("/a", _mixture, 6000, children=callees)], 6)
    made = memory([], 0)
    made.add_calls(calls)
    slow = calls["trace_id"][calls["exclusive_us"] > np.quantile(calls["exclusive_us"], 2 / 3)]
    archive = Strings.of(["archive GET /"] * len(slow))
    for callee, ids in ((edges["class"], edges["trace_id"]), (archive, slow)):
        made.add_edges({
            "trace_id": ids, "class": callee, "source_class": Strings.of([f"{SERVICE} GET /a"] * len(ids)),
            "span_id": np.array([f"{i:08x}{len(ids):08x}" for i in range(len(ids))], object),
            "adjusted_count": np.ones(len(ids)),
        })  # fmt: skip
    _, found = decide(made, [], OPTIONS)
    finding = found[f"{SERVICE} GET /a"]
    assert finding.split_attribute == "child archive GET /" and finding.split_explained > 0.7


def test_a_difference_is_told_by_what_is_left_of_it_among_many_comparisons():
    """If nothing differs, one comparison in 200 still has p = 0.005."""
    made = memory([Kind("/a", exponential(5)), Kind("/b", exponential(5))], 3).services[SERVICE]
    view = View(SERVICE, 0, made, memory([], 0).names, [], dict(made.classes))
    view.samples.update((key, sampled(kept)) for key, kept in made.classes.items())
    describe.look(view, [*made.classes], OPTIONS)
    seen = compare.Comparison(0.1, 0.05, 2.0, 0.005, 1.5, 0.1, 0.0, 0.0, 0.0, 1.0, 500)
    nearest = {("GET", "/a"): merge.Nearest("/b", seen)}
    for tests, verdict in ((1, "kept"), (200, "unsure")):
        finding = describe.findings(view, nearest, tests, OPTIONS)[0]
        assert (finding.verdict, finding.p_value) == (verdict, pytest.approx(min(1, 0.005 * tests)))


def test_alike_siblings_become_one_class_after_some_decisions():
    """/a/b and /a/c merge, /a/d is slower and stays. The third decision writes the rules."""
    made = memory(
        [Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5)), Kind("/a/d", exponential(20))], 7
    )
    assert decide(made, [], OPTIONS, times=2)[0] == []
    written, found = decide(made, [], OPTIONS, times=3)
    assert {(r.template, r.becomes, r.kind) for r in written} == {
        ("/a/b", "/a/{id}", "merged"), ("/a/c", "/a/{id}", "merged"),
    }  # fmt: skip
    assert all(r.effective_from - r.written_at >= rules.DELAY_MS and r.samples >= 1000 for r in written)
    slow = found[f"{SERVICE} GET /a/d"]
    assert slow.verdict == "kept" and slow.effect > 0.3 and slow.p_value < 1e-6


def test_in_a_row_means_without_a_decision_between_that_knew_nothing():
    alike = memory([Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5))], 7)
    others = memory([Kind("/x", exponential(5), 10)], 7)
    decider, written = Decider(OPTIONS), []
    for i, made in enumerate((alike, alike, others, alike)):
        written += decider.decide(SERVICE, made.services[SERVICE], made.names, [], 1_000_000 + i)[0]
    assert written == []


def test_siblings_unlike_the_others_do_not_use_up_all_comparisons():
    """Of 154 classes, the four most requested differ from all others.

    The next decision continues where this one had to end. What it finds comes first in the
    decisions that confirm it.
    """
    rng = np.random.default_rng(1)
    hot, cold = (
        [f"/a/{kind}{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(n)]
        for kind, n in (("hot", 4), ("x", 150))
    )
    mean = {template: 3.0 * 2**i for i, template in enumerate(hot)}
    samples = {
        t: Sampled(rng.exponential(mean.get(t, 1.0), 1500), np.zeros(1500, "i8"), np.ones(1500), {}, 0)
        for t in [*hot, *cold]
    }
    turn, found, sizes = 0, [], []
    for _ in range(5):
        pending = {(planned.template, planned.target) for planned in found}
        book = merge.Book(samples, OPTIONS)
        found, turn = merge.merges([*samples], lambda _: False, book, pending, turn)
        assert book.used <= merge.MAX_COMPARISONS and not {planned.template for planned in found} & set(hot)
        sizes.append(len(found))
    assert sizes[0] == 0 and all(size > 100 for size in sizes[-3:])


def test_classes_without_a_common_template_stay_apart():
    """Envoy has no single template that matches /a/b/c and /x."""
    made = memory(
        [
            Kind("/a/b/c", exponential(5)),
            Kind("/x", exponential(5)),
            Kind("/x", exponential(5), method="PUT"),
        ],
        7,
    )
    written, found = decide(made, [], OPTIONS, times=4)
    assert written == [] and "no common template" in found[f"{SERVICE} GET /x"].reason


def test_a_merge_does_not_flap():
    """Rules in force are not written again, even while the old classes are still remembered."""
    made = memory([Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5))], 8)
    written, _ = decide(made, [], OPTIONS, times=12)
    assert len(written) == 2


def test_a_merged_class_with_two_modes_is_taken_apart():
    """Its rules end, and its own template goes to /other until Envoys drop the route."""
    rule = rules.Rule(0, 0, SERVICE, "GET", "/a/b", "/a/{id}", rules.MERGED)
    written, _ = decide(memory([Kind("/a/{id}", _mixture)], 9), [rule], OPTIONS, times=3)
    assert [(r.template, r.becomes, r.kind) for r in written] == [
        ("/a/b", "", "retired"), ("/a/{id}", "/other", "bounded"), ("/a/{id}", "", "retired"),
    ]  # fmt: skip
    assert written[2].effective_from - written[1].effective_from == OPTIONS.drain * 1000


def test_a_learned_class_without_requests_ends():
    rule = rules.Rule(0, 0, SERVICE, "GET", "/old/*", "/old/{id}", rules.LEARNED)
    made = memory([Kind("/a", exponential(5), 10)], 1)
    assert decide(made, [rule], Options(retire_after=60), times=3)[0] == []
    written, _ = decide(made, [rule], Options(retire_after=60), times=5)
    assert [(r.template, r.kind) for r in written] == [("/old/*", "retired")]


def test_pins_win():
    """Classes that an operator has pinned are neither merged nor learned."""
    kinds = [Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5))]
    for template, becomes in (("/a/b", "/a/b"), ("/a/*", "/a/{x}"), ("/a/b", "/other")):
        pin = rules.Rule(0, 0, SERVICE, "", template, becomes, rules.PINNED, reason="said so")
        written, _ = decide(memory(kinds, 7), [pin], OPTIONS, times=4)
        assert written == []


# Samples


def test_samples_do_not_depend_on_order_or_repeats():
    """Samples hold whole traces: if a call is in them, its children are as well."""
    kinds = [Kind("/a", exponential(5), 6000, children={"stock GET /x": 1.0})]
    calls, edges = batches(kinds, 1)
    first, second = memory([], 0), memory([], 0)
    first.add_calls(calls)
    first.add_edges(edges)
    for part in np.array_split(np.random.default_rng(1).permutation(6000), 7):
        for _ in range(2):
            second.add_calls({name: column[part] for name, column in calls.items()})
    second.add_edges(edges)
    at_once, in_parts = (m.services[SERVICE].classes["GET", "/a"].now for m in (first, second))
    assert len(at_once.calls.rows()) == 2000 and at_once.calls.threshold == in_parts.calls.threshold
    assert (at_once.calls.rows()["span"] == in_parts.calls.rows()["span"]).all()
    [rate] = sampled(first.services[SERVICE].classes["GET", "/a"]).children.values()
    assert rate == pytest.approx((1.0, 0.0))


def test_weights_correct_for_sampling():
    """Half of the calls stand for nine others each, so they make nine tenths of the estimate."""
    made = memory([], 0)
    for times, weight, seed in ((4.0, 1.0, 1), (8.0, 9.0, 2)):
        calls, _ = batches(
            [Kind("/a", lambda rng, inside, t=times: np.full(len(inside), t), 5000)], seed, weight=weight
        )
        made.add_calls(calls)
    seen = sampled(made.services[SERVICE].classes["GET", "/a"])
    assert np.average(seen.ms, weights=seen.weight) == pytest.approx(7.6, abs=0.1)
    assert made.services[SERVICE].classes["GET", "/a"].requests == 50_000


def test_a_median_is_that_of_the_requests_which_samples_stand_for():
    """600 calls of 4 ms stand for themselves, 400 calls of 8 ms for nine requests each."""
    made = memory([], 0)
    for times, n, weight, seed in ((4.0, 600, 1.0, 1), (8.0, 400, 9.0, 2)):
        kind = Kind("/a", lambda rng, inside, t=times: np.full(len(inside), t), n)
        made.add_calls(batches([kind], seed, weight=weight)[0])
    _, found = decide(made, [], OPTIONS)
    assert found[f"{SERVICE} GET /a"].exclusive_p50_ms == 8.0


def test_one_absurd_trace_does_not_fill_memory():
    rows = np.zeros(100_000, sample.CALL)
    rows["span"] = np.arange(100_000)
    rows["key"] = 0.5
    kept = sample.BottomK(sample.CALL, 2000)
    kept.offer(rows)
    assert len(kept.rows()) == 2000
