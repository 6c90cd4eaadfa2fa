"""A plan on the golden model: policies, the rules in force now, and its text."""

import dataclasses
import io
import threading

import pytest
from planning import FRONTEND, plan_of, what_if
from spillway_optimizer.commands import plan_text
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.situation import now, situation


def test_a_plan_measures_everything_by_the_optimum(data):
    """The plan contains only the requested policies and the optimum.

    `above_optimum` is the relative difference of the objectives. The ruleset is the whole ruleset
    of the optimum.
    """
    document = plan_of(data, policies=("local", "round-robin"))
    rows = document["policies"]
    assert set(rows) == {"local", "round-robin", SPILLWAY}
    best = rows[SPILLWAY]["objective_usd_per_hour"]
    for row in (*rows.values(), document["now"]):
        assert row["above_optimum"] == pytest.approx(row["objective_usd_per_hour"] / best - 1)
    assert rows["round-robin"]["above_optimum"] > rows["local"]["above_optimum"] > 0
    assert 0 <= rows[SPILLWAY]["relative_gap"] < 1e-3 and rows["local"]["relative_gap"] is None
    assert document["ruleset"]["policy"] == SPILLWAY
    assert len(document["ruleset"]["rules"]) == len(rows[SPILLWAY]["rules"]) == 4


def test_without_rules_now_is_failover_and_with_rules_it_is_them(data):
    """Known rules are priced unchanged.

    A route fails over if it has no rule, or if its rule leads to a cluster that cannot serve it.
    """
    assert "failover" in plan_of(data)["now"]["rules_from"]
    away = {("west", "gateway", FRONTEND): {"east": 10_000}}
    known = dataclasses.replace(data, in_force=away, in_force_from="version 7")
    document = plan_of(known)
    assert document["now"]["rules_from"] == (
        "rules version 7; 3 of 4 routes have no rule that fits and fail over"
    )
    assert document["now"]["network_ms"] > 10
    astray = dataclasses.replace(
        data, in_force={("west", "gateway", FRONTEND): {"moon": 10_000}}, in_force_from="7"
    )
    of = situation(astray, what_if())
    assert (now(of).shares == now(situation(data, what_if())).shares).all()


def test_columns_line_up_under_the_longest_name(data):
    """Numbers end where their heading ends, also next to waterfall-central."""
    lines = plan_text.as_text(plan_of(data, policies=("waterfall-central", "local")), False).splitlines()
    head = next(n for n, line in enumerate(lines) if "mean ms" in line)
    end = lines[head].index("mean ms") + len("mean ms")
    rows = lines[head + 1 : head + 5]
    assert [row.split()[0] for row in rows] == ["now", "local", "waterfall-central", SPILLWAY]
    assert all(row[end - 1].isdigit() and row[end : end + 2] == "  " for row in rows)


def test_text_shows_what_json_has(data):
    """There is a line per policy with its numbers.

    Only the optimum's rules are shown, unless all rules are requested.
    """
    document = plan_of(data, "--scale", "1.1")
    short, long = plan_text.as_text(document, False), plan_text.as_text(document, True)
    assert f"{document['policies']['local']['mean_latency_ms']:.2f}" in short
    assert "what if: demand times 1.1" in short and "Nothing was published" in short
    assert "rules of spillway:" in short and "rules of local:" not in short and "rules of local:" in long


def test_long_work_says_what_it_is_and_short_work_is_silent():
    """One line appears when patience ends, and one with the time at the end. Nothing before."""
    stream, written = io.StringIO(), threading.Event()
    progress = Progress(stream, patience_s=0.0)
    write = progress.write
    progress.write = lambda line: (write(line), written.set())
    with progress.step("solving x"):
        assert written.wait(30)
    first, *_, last = stream.getvalue().splitlines()
    assert first == "solving x ..." and last.startswith("solving x: ")
    silent = io.StringIO()
    with Progress(silent, patience_s=3600.0).step("solving x"):
        pass
    assert silent.getvalue() == ""
