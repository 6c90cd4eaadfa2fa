"""What a plan reads from ClickHouse and from the running mesh: windows, boards and rules."""

import re
import time

import click
import pytest
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_optimizer.clients import history
from spillway_optimizer.commands import source_arguments
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.sources import clickhouse, live
from spillway_optimizer.sources.errors import InputError


def test_boards_of_a_window_are_means_of_its_sums():
    """Two rows of one class: entries count as demand, and all calls count as load.

    Times are those of calls that did not fail.
    """
    shared = {"cluster": "west", "service": "web", "class": "web GET /", "in_flight": 60.0}
    calls = [
        {**shared, "entry": 1, "calls": 100.0, "failed": 20.0, "duration_ms": 800.0, "exclusive_ms": 400.0},
        {**shared, "entry": 0, "calls": 50.0, "failed": 0.0, "duration_ms": 500.0, "exclusive_ms": 250.0},
    ]
    cpu = [{"cluster": "west", "service": "web", "utilisation": 0.3}]
    load, demand = clickhouse.boards(calls, cpu, clickhouse.Window(1000.0, 1010.0))
    entry, board = demand["west"]["web GET /"], load["west"]["web GET /"]
    assert (entry.at, entry.rps, entry.failed_share, entry.duration_ms) == (1010.0, 10.0, 0.2, 10.0)
    assert (board.rps, board.exclusive_ms, board.in_flight, board.cpu) == (15.0, 5.0, 0.8, 0.3)


def test_windows_of_history():
    """The default is the newest window of five minutes whose traces are stored.

    A window may start at a given time and have a given length, but never ends after now.
    """
    assert clickhouse.window(None, None, 1000.0) == clickhouse.Window(685.0, 985.0)
    assert clickhouse.window(None, 60.0, 1000.0) == clickhouse.Window(925.0, 985.0)
    assert clickhouse.window(400.0, 60.0, 1000.0) == clickhouse.Window(400.0, 460.0)
    assert clickhouse.window(980.0, 60.0, 1000.0) == clickhouse.Window(980.0, 1000.0)
    with pytest.raises(InputError, match="--since: .* lies ahead"):
        clickhouse.window(2000.0, None, 1000.0)


def test_times_are_read_as_utc_or_as_ago():
    assert (
        source_arguments.when("2026-01-01T00:00:30")
        == source_arguments.when("2026-01-01T01:00:30+01:00")
        == 1767225630.0
    )
    assert source_arguments.when("90m", now=10_000.0) == 4600.0
    for text in ("soon", "5", "-3m", "0s", "999999999d", "9" * 400 + "d", "0001-01-01T00:00+14:00"):
        with pytest.raises(click.BadParameter, match=re.escape(text)):
            source_arguments.when(text)


def test_rules_of_history_are_of_each_clusters_newest_version():
    """There is one row per rule and destination. Weights of 0 are left out."""
    row = {"at": 5.0, "version": 3, "source_cluster": "w", "source_service": "a", "class": "b GET /"}
    rows = [
        {**row, "destination_cluster": "w", "weight": 9000},
        {**row, "destination_cluster": "e", "weight": 1000},
        {**row, "destination_cluster": "s", "weight": 0},
    ]
    assert clickhouse.rules(rows) == ({("w", "a", "b GET /"): {"w": 9000, "e": 1000}}, 3, 5.0)
    assert clickhouse.rules([]) == (None, 0, 0.0)


@pytest.mark.parametrize(("left_s", "rules"), [
    (60, {("w", "a", "b GET /"): {"w": 10_000}}), (-60, {("w", "a", "b GET /"): {"w": 10_000}}), (-86_400, None),
])  # fmt: skip
def test_rules_that_are_held_no_longer_are_not_in_force(monkeypatch, data, left_s, rules):
    """Relays of the running mesh no longer follow these rules, and a note says so."""
    key = ("w", "a", "b GET /")
    ruleset = Ruleset()
    ruleset.expires_at.FromSeconds(int(time.time()) + left_s)
    known = InForce(
        {RuleKey(*key): {"w": 10_000}}, Origin.ORIGIN_OPTIMIZER, "spillway", {"w": 7}, "r", {"w": ruleset}
    )

    async def boards(url, clusters):
        return data.telemetry, known

    monkeypatch.setattr(live, "_hot", boards)
    monkeypatch.setattr(live.History, "model", lambda self: history.ModelRows((), (), (), ()))
    monkeypatch.setenv("SPILLWAY_REDIS_URL", "redis://localhost")
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://localhost")
    found = live.read(data.topology)
    assert found.in_force == rules
    assert ("rules: version 7 is the newest, and has expired" in found.notes) == (rules is None)
