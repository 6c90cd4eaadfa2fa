"""The figures of the end of a run, when control loops have arrived, beside those of all of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import MEASURED_S, made
from spillway_lab.findings import beside_papers, catalogue, kept, reading
from spillway_lab.findings.gathered import RunFigures, summarised
from spillway_lab.findings.papers import Figure
from spillway_lab.pages import pages
from spillway_lab.report import results
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.scenario.loads import Measure

LAB = Path(__file__).resolve().parents[2]
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


def test_the_page_shows_the_end_also_from_figures_that_are_kept(tmp_path: Path) -> None:
    """The same words from results and without them, and the paper's figure beside ours."""
    experiment = catalogue.load(LAB / "experiments/moved-fault.yaml")
    (variant,) = (each for each in catalogue.variants(experiment) if each.name == "lasting-fault-live")
    run, columns = made({"spillway": 50.0, "spillway-no-papa": 90.0}, name=variant.name)
    longer = [replace(each, at_s=20 * each.at_s) for each in columns]
    folder = tmp_path / "results/moved-fault" / variant.name
    folder.mkdir(parents=True)
    results.write(folder, replace(run, measured_seconds=20 * MEASURED_S), longer)
    texts = []
    for found in ("results", "none"):
        chapters = reading.chapters(
            LAB / "experiments", LAB / "papers.yaml", tmp_path / found, tmp_path / "figures"
        )
        (chapter,) = (each for each in chapters if each.id == "moved-fault")
        assert [each.reached for each in chapter.beside][0] in ("reached", "not told apart")
        kept.write(tmp_path / "figures", chapters)
        pages.write(chapters, tmp_path / "out")
        texts.append((tmp_path / "out/README.md").read_text())
    assert texts[0] == texts[1]
    assert "From 300 s on, when control loops have arrived" in texts[0]
