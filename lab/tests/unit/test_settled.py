"""What control loops arrive at: figures of the end of a run beside those of all of it."""

from dataclasses import replace

import numpy as np
import pytest
from made_runs import MEASURED_S, made
from spillway_lab.findings import beside_papers
from spillway_lab.findings.gathered import RunFigures, summarised
from spillway_lab.findings.papers import Figure
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.scenario.loads import Measure

BEGIN_S = 20.0


def arriving() -> RunFigures:
    """`loop` is three times as slow as `ideal` for 20 of 30 seconds, and as fast from then on."""
    run, columns = made({"loop": 50.0, "ideal": 50.0})
    slowed = [
        replace(each, latency_ms=np.where(each.at_s < BEGIN_S, 3, 1).astype(np.float32) * each.latency_ms)
        if its_round.policy == "loop"
        else each
        for its_round, each in zip(run.rounds, columns, strict=True)
    ]
    return summarised(run, slowed, settled_s=BEGIN_S)


def test_the_end_alone_has_what_loops_arrive_at() -> None:
    """Over all of it `loop` is much slower. At the end the two are not told apart."""
    found = arriving()
    assert found.settled is not None
    whole, end = (each.pair("ideal", "loop", "mean_ms").ratio for each in (found, found.settled))
    assert whole.low and whole.low > 1.8
    assert end.low and end.high and end.low < 1 < end.high
    assert found.settled.setting.measured_seconds == MEASURED_S - BEGIN_S


def test_what_is_known_of_whole_rounds_alone_is_unknown_at_the_end() -> None:
    """Egress is counted once per round, so the end has none. It is not 0."""
    settled = arriving().settled
    assert settled is not None
    assert settled.policies["loop"].figures["egress_usd_per_hour"].value is None
    assert settled.policies["loop"].figures["failed_share"].value == 0.0


def test_a_run_that_ended_before_has_no_end() -> None:
    """A shorter run of the same scenario has figures of all of it, and no others."""
    assert summarised(*made({"loop": 50.0}), settled_s=MEASURED_S).settled is None


def test_requests_since_a_moment_keep_their_columns_together() -> None:
    at_s = np.array([1, 2, 3], np.float32)
    columns = RoundSamples(at_s, 10 * at_s, np.array([True, False, True]), at_s.astype(np.uint8), np.zeros(3))
    since = columns.since(2)
    assert since.at_s.tolist() == [0, 1]
    assert since.latency_ms.tolist() == [20, 30]
    assert since.ok.tolist() == [False, True]
    assert since.cluster.tolist() == [2, 3]


@pytest.mark.parametrize(("settled", "reached"), [(True, "reached"), (False, "not reached")])
def test_a_papers_figure_of_the_end_stands_beside_ours_of_the_end(settled: bool, reached: str) -> None:
    """A paper that compares after the last step is not compared with the minutes before it."""
    measure = {"metric": "mean_ms", "of": "loop", "over": "ideal", "settled": settled}
    figure = Figure.model_validate(
        {"experiment": "x", "paper": "p", "where": "w", "says": "s", "value": 1.6, "unit": "×",
         "better": "less", "measure": measure}
    )  # fmt: skip
    assert beside_papers.beside(figure, {"x": arriving()}, None).reached == reached
    never_settles = summarised(*made({"loop": 50.0, "ideal": 50.0}))
    assert (beside_papers.beside(figure, {"x": never_settles}, None).reached is None) == settled


def test_a_measured_part_ends_after_loops_have_arrived() -> None:
    with pytest.raises(ValueError, match="settled_seconds: 60; allowed: less than the measured 60 s"):
        Measure(warm_up_seconds=0, measured_seconds=60, settled_seconds=60, rps={"west": 1})
