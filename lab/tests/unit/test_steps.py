"""How a step of the load is followed to an Envoy's weights. No stack is needed."""

import json

import pytest
from spillway_lab.experiments.steps import (
    Origin,
    Seen,
    Shown,
    Step,
    Taken,
    document,
    percentile_s,
    reaction,
    stepping,
    steps,
)
from spillway_lab.scenario.loads import Phase
from spillway_lab.stack import envoys

UP = Step(100.0, 108.0, 60.0, 130.0)
SHOWN = [Shown(99.0, 60.0), Shown(100.4, 80.0), Shown(100.6, 120.0), Shown(101.0, 130.0)]
TAKEN = [Taken(50.0, 3, 0.0), Taken(101.0, 4, 0.1), Taken(102.0, 5, 0.25), Taken(107.0, 6, 0.4)]
ORIGIN = Origin("load", 101.5, 101.75, 101.875)


def test_each_change_of_a_rate_is_a_step() -> None:
    """A phase at the rate of the one before is none, and other clusters do not count."""
    rates = [{"a": 60, "b": 10}, {"a": 130, "b": 10}, {"a": 130, "b": 10}, {"b": 10}]
    plan = [Phase(seconds=8, rps=rps) for rps in rates]
    assert steps(100.0, plan, "a") == [Step(108.0, 116.0, 60, 130), Step(124.0, 132.0, 130, 0)]
    assert steps(100.0, plan, "b") == []
    assert stepping(plan) == ["a"]


def test_the_weights_have_followed_when_half_of_their_change_is_there() -> None:
    """A ruleset with a quarter of the change is not the answer, and the last is not needed."""
    found = reaction(UP, Seen(SHOWN, TAKEN, {5: ORIGIN}))
    assert found.total_s == 2.0 and found.trigger == "load"
    assert found.stages_s == pytest.approx(
        {"board": 0.6, "trigger": 0.9, "solve": 0.25, "publish": 0.125, "relay": 0.125}
    )
    assert sum(found.stages_s.values()) == pytest.approx(found.total_s)


def test_a_fall_is_followed_as_a_rise_is() -> None:
    down = Step(100.0, 108.0, 130.0, 60.0)
    shown = [Shown(99.0, 130.0), Shown(100.5, 90.0)]
    taken = [Taken(50.0, 3, 0.4), Taken(102.0, 5, 0.1), Taken(107.0, 6, 0.0)]
    assert reaction(down, Seen(shown, taken, {5: ORIGIN})).stages_s["board"] == pytest.approx(0.5)


def test_a_solve_before_the_board_shows_half_leaves_no_time_for_the_trigger() -> None:
    """The stages still add up to the whole."""
    found = reaction(UP, Seen([Shown(105.0, 130.0)], TAKEN, {5: ORIGIN}))
    assert found.stages_s["board"] == 1.5 and found.stages_s["trigger"] == 0.0
    assert sum(found.stages_s.values()) == 2.0


@pytest.mark.parametrize(
    "taken",
    [
        [],
        [Taken(50.0, 3, 0.1)],
        [Taken(50.0, 3, 0.1), Taken(101.0, 4, 0.14)],
        [Taken(50.0, 3, 0.1), Taken(109.0, 4, 0.4)],
        [Taken(101.0, 4, 0.4)],
    ],
)
def test_weights_that_do_not_move_in_time_are_no_answer(taken: list[Taken]) -> None:
    """No routes, no new ones, hardly any change, only after the next step, or no weights before."""
    assert reaction(UP, Seen(SHOWN, taken, {4: ORIGIN})).total_s is None


def test_routes_of_an_envoy_name_their_ruleset_and_what_they_send_away() -> None:
    """The route with the largest share counts. Without weights, nothing is sent away."""
    cluster = lambda name, weight: {"name": f"backend|{name}", "weight": weight}  # noqa: E731
    split = {"weighted_clusters": {"clusters": [cluster("west", 7500), cluster("east", 2500)]}}
    home = {"weighted_clusters": {"clusters": [cluster("west", 10_000)]}}
    metadata = {"filter_metadata": {"spillway": {"ruleset_version": 7.0}}}
    routes = [
        {"name": "a", "route": home},
        {"name": "b", "route": split, "metadata": metadata},
        {"name": "c"},
    ]
    config = {"virtual_hosts": [{"routes": routes}]}
    assert envoys.share_away(config, "west") == 0.25 and envoys.version(config) == 7
    assert envoys.share_away({}, "west") == 0.0 and envoys.version({}) == 0


def test_stages_of_a_ruleset_without_an_origin_are_unknown() -> None:
    """Its row is missing, or it was solved before the step and cannot be an answer to it."""
    assert reaction(UP, Seen(SHOWN, TAKEN, {})).stages_s == {}
    early = Origin("period", 99.0, 101.75, 101.875)
    assert reaction(UP, Seen(SHOWN, TAKEN, {5: early})).stages_s == {}


def test_a_percentile_is_a_value_and_a_missing_one_is_the_longest() -> None:
    """Of twenty values, the nineteenth is the 95th percentile: one missing value is beyond it."""
    known = [float(n) for n in range(1, 20)]
    assert percentile_s([*known, None], 0.95) == 19.0
    assert percentile_s([*known[1:], None, None], 0.95) is None
    assert percentile_s([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile_s([], 0.5) is None


def test_the_document_is_strict_json_and_counts_what_was_not_answered() -> None:
    answered = reaction(UP, Seen(SHOWN, TAKEN, {5: ORIGIN}))
    line = json.loads(json.dumps(document([answered, reaction(UP, Seen([], [], {}))]), allow_nan=False))
    assert (line["steps"], line["unanswered"], line["p50_s"], line["p95_s"]) == (2, 1, 2.0, None)
    assert line["stages"]["trigger"] == {"p50_s": 0.9, "p95_s": 0.9}
    assert line["triggers"] == {"load": 1} and line["down_p50_s"] is None
