import dataclasses
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import topology, traffic_class
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.proposal import adjusted
from spillway_optimizer.papa.step import (
    Observation,
    Parameters,
    Progress,
    choose,
    discrepancies,
    gain,
    judge,
    restart,
    shift,
    significant,
)
from spillway_optimizer.problem.rules import OTHERS_DELTA, TOTAL, RuleKey, largest_remainder, of_ruleset
from spillway_optimizer.rulesets.assemble import UnverifiedError

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"

KEY, OTHER = RuleKey("west", "web", "db GET /x"), RuleKey("east", "web", "db GET /x")


@st.composite
def weighted(draw):
    n = draw(st.integers(2, 6))
    shares = [draw(st.floats(0.01, 1)) for _ in range(n)]
    names = [f"c{i}" for i in range(n)]
    weights = dict(zip(names, map(int, largest_remainder(shares)), strict=True))
    return weights, {c: draw(st.floats(-1e4, 1e4)) for c in names}


@given(weighted(), st.floats(0.001, 1.0))
def test_a_step_keeps_the_sum_and_moves_towards_better_than_predicted(case, gamma):
    """For any discrepancies, the sum stays, no weight is negative, and no destination is added.

    At most gamma moves. No destination below the mean gains, and none above it loses.
    """
    weights, d = case
    after = shift(weights, d, gamma)
    mean = sum(d.values()) / len(d)
    assert sum(after.values()) == TOTAL and min(after.values()) >= 0
    assert after.keys() == weights.keys()
    assert sum(max(0, after[c] - weights[c]) for c in weights) <= gamma * TOTAL + len(weights)
    for c in weights:
        # Rounding may add or remove one part.
        assert after[c] <= weights[c] + 1 if d[c] < mean else after[c] >= weights[c] - 1


def test_the_step_of_the_paper_by_hand():
    """East is 30 ms worse than predicted, south as predicted, and west 6 ms better.

    East gives 5 %. West and south share it in proportion to their distance above the mean.
    """
    weights = {"west": 5000, "south": 3000, "east": 2000}
    # The mean is -8: west is 14 above it, south 8 above, and east 22 below.
    d = {"west": 6.0, "south": 0.0, "east": -30.0}
    after = shift(weights, d, 0.05)
    assert after["east"] == 1500
    assert after["west"] == pytest.approx(5000 + 500 * 14 / 22, abs=1)
    assert after["south"] == pytest.approx(3000 + 500 * 8 / 22, abs=1)


def test_a_weight_never_falls_below_zero():
    """A destination with 1 % can give at most that."""
    assert shift({"west": 9900, "east": 100}, {"west": 1.0, "east": -1.0}, 0.05) == {
        "west": 10_000,
        "east": 0,
    }


def test_no_weight_falls_below_the_least_share():
    """A destination with 3 % keeps 1 % of a step of 5 %, and one with less keeps what it has."""
    d = {"west": 1.0, "east": -1.0}
    assert shift({"west": 9700, "east": 300}, d, 0.05, 100) == {"west": 9900, "east": 100}
    assert shift({"west": 9950, "east": 50}, d, 0.05, 100) == {"west": 9950, "east": 50}


@pytest.mark.parametrize("poor", [0, 100])
def test_a_destination_that_has_nothing_to_give_hinders_no_other(poor):
    """`b` gives to `c`, although `a` is worse than both and has the least share already."""
    d = {"a": -50.0, "b": -40.0, "c": 100.0}
    found = shift({"a": poor, "b": 5000, "c": 5000 - poor}, d, 0.05, 100)
    assert found == {"a": poor, "b": 4500, "c": 5500 - poor}


def test_discrepancy_is_weighted_by_volume():
    """(expected - observed) times the requests per second to each destination with weight."""
    observed = {
        "west": Observation([-2, -2]),
        "east": Observation([10]),
        "south": Observation([-8]),
    }
    d = discrepancies({"west": 7500, "east": 2500, "south": 0}, observed, 200.0)
    assert d == {"west": pytest.approx(-300.0), "east": pytest.approx(500.0)}


def test_costs_are_of_one_more_request_whatever_the_volume():
    """Less cost is better. The least cost gets weight, also where all do as the model says."""
    observed = {"west": Observation([0.0], [90.0]), "east": Observation([0.0], [40.0])}
    assert discrepancies({"west": 9000, "east": 1000}, observed, 10.0, "gap") == {"west": 0, "east": 0}
    d = discrepancies({"west": 9000, "east": 1000}, observed, 10.0, "cost")
    assert d == {"west": -900.0, "east": -400.0}
    assert shift({"west": 9000, "east": 1000}, d, 0.05) == {"west": 8500, "east": 1500}


def test_by_costs_the_rule_whose_step_saves_most_is_chosen():
    """One rule has the larger difference of costs and almost nothing to move."""
    little, much = {"west": 9990, "east": 10}, {"west": 5000, "east": 5000}
    observed = {
        KEY: {"west": Observation([0, 0], [10, 10.1]), "east": Observation([0, 0], [500, 500.1])},
        OTHER: {"west": Observation([0, 0], [10, 10.1]), "east": Observation([0, 0], [60, 60.1])},
    }
    rps = {KEY: 100.0, OTHER: 100.0}
    by_cost = Parameters(direction="cost")
    assert choose({KEY: little, OTHER: much}, observed, rps, Progress.none(), by_cost) == OTHER
    assert gain(much, {"west": 5500, "east": 4500}, observed[OTHER], 100.0) == pytest.approx(250.0)


def test_a_step_that_is_kept_doubles_the_next_one_until_one_fails():
    """A longer step that fails is no failed attempt. A step of gamma that fails is one."""
    p = Parameters(gamma=0.05, gamma_most=0.15)
    found = Progress.none()
    sizes = []
    for improved in (True, True, True, False, False):
        found = judge(found, KEY, improved, p)
        sizes.append((found.sizes.get(KEY, p.gamma), found.attempts.get(KEY, 0)))
    assert sizes == [(0.1, 0), (0.15, 0), (0.15, 0), (0.05, 0), (0.05, 1)]
    assert judge(Progress.none(), KEY, True, Parameters()).sizes == {}  # the paper's steps


def test_noise_is_not_acted_upon():
    """The same spread of means is significant if the samples agree, and not if they scatter."""
    weights, parameters = {"west": 5000, "east": 5000}, Parameters()
    calm = {"west": Observation([-10, -11, -10, -11]), "east": Observation([0, -1, 0, -1])}
    noisy = {"west": Observation([10, -31, 8, -29]), "east": Observation([10, -11, 10, -11])}
    assert significant(calm, weights, parameters)
    assert not significant(noisy, weights, parameters)
    assert not significant(calm, {"west": TOTAL, "east": 0}, parameters)
    assert not significant(calm, weights, dataclasses.replace(parameters, min_gap_ms=20.0))


def test_the_rule_with_the_largest_variance_is_chosen_until_it_converges():
    """Rules are ordered by potential improvement (SLATE 4.4.2).

    After theta failures, the next rule is chosen.
    """
    weights = {"west": 5000, "east": 5000}
    far = {"west": Observation([-30, -30.1]), "east": Observation([0, -0.1])}
    near = {"west": Observation([-10, -10.1]), "east": Observation([0, -0.1])}
    rules, observed, rps = {KEY: weights, OTHER: weights}, {KEY: near, OTHER: far}, {KEY: 100.0, OTHER: 100.0}
    progress, parameters = Progress.none(), Parameters(theta=2)
    assert choose(rules, observed, rps, progress, parameters) == OTHER
    progress = judge(judge(progress, OTHER, False, parameters), OTHER, True, parameters)
    assert choose(rules, observed, rps, progress, parameters) == OTHER
    progress = judge(judge(progress, OTHER, False, parameters), OTHER, False, parameters)
    assert progress.converged == {OTHER}
    assert choose(rules, observed, rps, progress, parameters) == KEY


def test_exploration_restarts_on_new_rules_or_new_performance():
    """All progress is forgotten after a large enough change.

    That is any rule change beyond OTHERS_DELTA, or any latency change beyond delta_perf.
    """
    done, p = Progress({KEY: 3}, frozenset({KEY})), Parameters()
    a, c = ({KEY: {"west": w, "east": TOTAL - w}} for w in (5000, 5000 + OTHERS_DELTA + 1))
    assert restart(done, a, a, {"x": 10.0}, {"x": 10.9}, p) == done
    assert restart(done, a, c, {"x": 10.0}, {"x": 10.0}, p) == Progress.none()
    assert restart(done, a, {}, {"x": 10.0}, {"x": 10.0}, p) == Progress.none()
    assert restart(done, a, a, {"x": 10.0}, {"x": 11.1}, p) == Progress.none()


def test_a_rule_that_others_changed_is_never_converged():
    """This holds for any change, because the attempts were made with other weights.

    Other rules keep their progress.
    """
    done = Progress({KEY: 3, OTHER: 3}, frozenset({KEY, OTHER}))
    same = {"west": 5000, "east": 5000}
    before = {KEY: same, OTHER: same}
    after = {KEY: {"west": 5001, "east": 4999}, OTHER: same}
    assert restart(done, before, after, {}, {}, Parameters()) == Progress({OTHER: 3}, frozenset({OTHER}))


def test_a_step_is_proposed_as_its_rule_alone_from_the_version_that_was_read():
    """Predictions are kept.

    Policy and window are left to the publisher, so that a publisher of version 0.1.0 refuses it.
    """
    declared = topology.load(GOLDEN / "topology.yaml")
    whole = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
    whole.version = 9
    rule = next(r for r in whole.rules if r.source_cluster == "west" and len(r.destinations) > 1)
    key = RuleKey("west", rule.source_service, traffic_class.format_id(rule.traffic_class))
    in_force = InForce(of_ruleset(whole), whole.origin, whole.policy, {"west": 9}, whole.id, {"west": whole})
    weights = {rule.destinations[0].cluster: 9000, rule.destinations[1].cluster: 1000}
    step = adjusted(in_force, key, weights, "why", "id", 100.0, 60.0, declared)
    assert (step.partial, step.base_version, step.policy, step.HasField("input_window")) == (
        True,
        9,
        "",
        False,
    )
    (changed,) = step.rules
    assert {d.cluster: d.weight for d in changed.destinations} == weights and changed.reason == "why"
    assert changed.destinations[0].predicted_compute_ms == rule.destinations[0].predicted_compute_ms
    with pytest.raises(UnverifiedError, match="no rule in force"):
        adjusted(in_force, key._replace(source_cluster="mars"), weights, "why", "id", 100.0, 60.0, declared)


def test_checkpoint_round_trip():
    """A restarted worker resumes from what was saved in Redis. Anything else is refused."""
    trial = Trial(KEY, {"west": TOTAL}, {"west": 9500, "east": 500}, 31.5)
    saved = Checkpoint(
        Progress({KEY: 1}, frozenset({OTHER}), {KEY: 0.1}),
        {KEY: {"west": TOTAL}},
        {"west x": 3.0},
        trial,
        {OTHER: Trial(OTHER, {"west": 9000, "east": 1000}, {"west": TOTAL}, 31.5)},
    )
    assert Checkpoint.from_json(saved.to_json()) == saved
    assert Checkpoint.from_json(None) == Checkpoint()
    with pytest.raises(ValueError, match="papa checkpoint"):
        Checkpoint.from_json("{}")
