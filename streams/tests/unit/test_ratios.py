"""The comparison of curves that share a parameter, and the queue that shares its workers."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from accuracy import queues, ratios
from accuracy.ratios import MODELS, Line, Row, as_json, summary
from accuracy.simulated import Pod

SHORT = Line(a=10.0, b=5.0, a_se=1.0, b_se=2.0, correlation=-0.9, weight=1.0)
LONG = Line(a=33.0, b=6.0, a_se=6.0, b_se=9.0, correlation=-0.9, weight=3.0)
POD = Pod(1, (10.0, 30.0), (0.5, 0.5))


@pytest.mark.parametrize(("workers", "u"), [(1, 0.5), (1, 0.8), (4, 0.7)])
def test_processor_sharing_is_as_slow_as_theory(workers, u):
    """One worker takes s / (1 - u), whatever the requests are. With exponential times, several
    workers take as long on average as in a queue that is first in, first out.
    """
    random = np.random.default_rng(workers)
    at = queues.arrivals(np.full(2000, u * 100), random)
    service = random.exponential(0.01 * workers, len(at))
    took = queues.shared(at, service, workers)
    expected = 0.01 * workers * (1 + queues.erlang_wait(workers, u))
    assert took.mean() == pytest.approx(expected, rel=0.08)
    busy = queues.busy(at, took, workers, 2000)
    assert busy.mean() == pytest.approx(service.sum() / workers / 2000, rel=1e-2)


def test_processor_sharing_by_hand():
    """A request of 2 s starts at 0, one of 1 s at 1: each gets a half, and both end at 3 s."""
    took = queues.shared(np.array([0.0, 1.0, 5.0]), np.array([2.0, 1.0, 1.0]), 1)
    assert took.tolist() == [3.0, 2.0, 1.0]
    assert queues.shared(np.array([0.0, 1.0]), np.array([2.0, 1.0]), 2).tolist() == [2.0, 1.0]


def test_a_curve_that_moves_keeps_its_latency_where_a_and_b_say_so():
    """With fully opposed errors of equal size per stretch, the curve turns around one point."""
    line = replace(SHORT, correlation=-1.0)
    moved, stretch = line.moved(12.0), line.b_se / line.a_se
    assert moved(1 - 1 / stretch) == pytest.approx(line(1 - 1 / stretch))
    assert line.moved(0.0).b == pytest.approx(line.b + 10 * stretch)
    assert replace(line, b=-9.0).moved(12.0).b == -12.0, "latency without load is not below 0"


def test_ratios_are_shared_only_where_errors_cannot_tell_them_apart():
    """10 / 1 and 33 / 3 differ by less than their errors. With smaller errors they do not share.

    The mean is nearer to the class with the smaller error.
    """
    shared = MODELS["ratio"].shared((SHORT, LONG), POD, 0.0)
    assert shared is not None
    ratio = shared[0].a / shared[0].weight
    assert shared[1].a / shared[1].weight == pytest.approx(ratio) == pytest.approx(10.2)
    sure = (replace(SHORT, a_se=0.1), replace(LONG, a_se=0.3))
    assert MODELS["ratio"].shared(sure, POD, 0.0) is None
    assert MODELS["same a"].shared((SHORT, LONG), POD, 0.0) is None


def test_errors_that_are_known_to_move_together_tell_more_apart():
    """The same difference is significant if the errors of both classes are nearly the same."""
    alike = (SHORT, replace(LONG, a=36.0, a_se=3.0))
    assert MODELS["joint"].shared(alike, POD, 0.0) is not None
    assert MODELS["joint"].shared(alike, POD, 0.95) is None


def test_a_class_that_is_not_fitted_shares_nothing():
    assert MODELS["ratio"].shared((SHORT, replace(LONG, correlation=math.nan)), POD, 0.0) is None


def test_the_true_latency_of_several_workers_is_erlangs_where_classes_are_alike():
    alike = Pod(4, (20.0, 20.0), (0.5, 0.5))
    expected = 20 * (1 + queues.erlang_wait(4, 0.7))
    assert ratios.true_ms(alike, alike.shares, 0.7) == pytest.approx([expected] * 2, rel=0.03)


def test_what_was_not_shared_is_null_in_the_json_line():
    """JSON has no NaN: strict readers refuse the whole line."""
    row = Row("q", "h", "joint", "short", 0.3, 40, 0.1, 0, math.nan, math.nan, math.nan)
    line = as_json(summary([row]) | {"rows": [asdict(row)]})
    read = json.loads(line, parse_constant=pytest.fail)
    assert read["joint"] is None and read["rows"][0]["error"] is None
    assert read["rows"][0]["error_all"] == 0.1


def test_one_history_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ratios.py", "--seeds", "1"])
    with pytest.raises(SystemExit, match="2"):
        ratios.main()
    assert "--seeds: 1, must be at least 2" in capsys.readouterr().err
