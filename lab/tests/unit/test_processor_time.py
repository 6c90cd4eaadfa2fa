"""Processor time of a stack's processes is complete across restarts, and no second counts twice."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_lab.load.processor_time import ENDED, Account, Usage, parse, read

SUPERVISOR, KAFKA, CLICKHOUSE = 10, 20, 30
ROOTS = {SUPERVISOR: "supervisor", KAFKA: "kafka", CLICKHOUSE: "clickhouse"}


def usage(pid: int, own_s: float, ended_s: float = 0.0, parent: int = SUPERVISOR, started: int = 1) -> Usage:
    return Usage(pid, started, parent, "program", own_s, ended_s)


def spent(*readings: list[Usage], roots: dict[int, str] | None = None) -> dict[tuple[str, str], float]:
    account = Account()
    for reading in readings:
        account.take({found.pid: found for found in reading}, roots or ROOTS)
    return {name: pytest.approx(seconds) for name, seconds in account.spent_s.items() if seconds}


def test_the_fields_of_proc_stat_are_read_behind_a_name_with_parentheses() -> None:
    fields = ["S", "7", *["0"] * 9, "250", "50", "30", "20", *["0"] * 4, "1234"]
    found = parse(42, f"42 (a (b) c) {' '.join(fields)} 0 0", ["a"])
    ticks = os.sysconf("SC_CLK_TCK")
    assert found == Usage(42, 1234, 7, "a (b) c", 300 / ticks, 50 / ticks)


def test_a_python_is_named_after_its_module() -> None:
    stat = "1 (python) S 0 " + " ".join(["0"] * 30)
    assert parse(1, stat, ["python", "-m", "spillway_streams", "graph", ""]).name == "python spillway_streams"
    assert parse(1, stat, ["python", "-m"]).name == "python"
    assert parse(1, stat.replace("python", "java"), ["java", "-m", "x"]).name == "java"


def test_a_process_of_this_machine_is_read_with_its_ended_children() -> None:
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    found = read()[os.getpid()]
    assert (found.pid, found.parent) == (os.getpid(), os.getppid())
    assert found.own_s > 0 and found.ended_s > 0


def test_only_what_was_used_after_the_first_reading_counts() -> None:
    assert spent([usage(KAFKA, 5.0)], [usage(KAFKA, 5.5)], [usage(KAFKA, 7.0)]) == {("kafka", "program"): 2.0}


def test_a_child_counts_for_the_job_of_its_nearest_ancestor() -> None:
    before = [usage(SUPERVISOR, 1.0, parent=1), usage(KAFKA, 1.0), usage(21, 1.0, parent=KAFKA)]
    after = [usage(SUPERVISOR, 1.5, parent=1), usage(KAFKA, 1.0), usage(21, 3.0, parent=KAFKA)]
    assert spent(before, after) == {("supervisor", "program"): 0.5, ("kafka", "program"): 2.0}


def test_processes_of_no_job_are_left_out() -> None:
    assert spent([usage(99, 1.0, parent=1)], [usage(99, 2.0, parent=1)]) == {}


def test_a_child_that_begins_and_ends_between_readings_is_among_the_ended_children() -> None:
    found = spent([usage(KAFKA, 1.0, 2.0)], [usage(KAFKA, 1.0, 2.75)])
    assert found == {("kafka", "program" + ENDED): 0.75}


def test_what_an_ended_child_had_used_at_the_last_reading_counts_once() -> None:
    child = usage(21, 3.0, parent=KAFKA)
    before, between = [usage(KAFKA, 1.0)], [usage(KAFKA, 1.0), child]
    found = spent(before, between, [usage(KAFKA, 1.0, 3.25)])
    assert found == {("kafka", "program"): 3.0, ("kafka", "program" + ENDED): 0.25}


def test_a_child_that_nobody_waited_for_takes_nothing_away() -> None:
    before = [usage(KAFKA, 1.0), usage(21, 3.0, parent=KAFKA)]
    assert spent(before, [usage(KAFKA, 1.5)]) == {("kafka", "program"): 0.5}


def test_a_restarted_process_counts_in_full_beside_what_its_predecessor_used() -> None:
    supervisor = usage(SUPERVISOR, 0.0, parent=1)
    account = Account()
    for reading, roots in (
        ([supervisor, usage(KAFKA, 10.0)], ROOTS),
        ([supervisor, usage(KAFKA, 11.0)], ROOTS),
        # It used another 0.125 s before it ended, which only the supervisor has.
        ([usage(SUPERVISOR, 0.0, 11.125, 1), usage(22, 0.5)], {SUPERVISOR: "supervisor", 22: "kafka"}),
    ):
        account.take({found.pid: found for found in reading}, roots)
    assert account.spent_s["kafka", "program"] == pytest.approx(1.5)
    assert account.spent_s["supervisor", "program" + ENDED] == pytest.approx(0.125)


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    assert spent([usage(KAFKA, 9.0, started=1)], [usage(KAFKA, 2.0, started=2)]) == {
        ("kafka", "program"): 2.0
    }


def test_an_orphan_and_its_children_keep_their_job() -> None:
    before = [usage(KAFKA, 1.0), usage(21, 1.0, parent=KAFKA), usage(1, 0.0, parent=0)]
    after = [usage(21, 2.0, parent=1), usage(23, 0.5, parent=21), usage(1, 0.0, parent=0)]
    assert spent(before, after, after, roots={KAFKA: "kafka"}) == {("kafka", "program"): 1.5}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_parts_add_up_to_what_the_supervisor_and_its_children_used(data: st.DataObject) -> None:
    """Every child is waited for, so the sum of all totals is exact, whoever began or ended."""
    supervisor = [0.0, 0.0]
    living: dict[int, float] = {}
    began = 0
    account = Account()

    def take() -> None:
        reading = {pid: usage(pid, own) for pid, own in living.items()}
        reading[SUPERVISOR] = usage(SUPERVISOR, *supervisor, parent=1)
        account.take(reading, {SUPERVISOR: "supervisor"} | dict.fromkeys(living, "job"))

    take()
    for _ in range(data.draw(st.integers(1, 12))):
        for pid in data.draw(st.permutations(sorted(living))):
            living[pid] += data.draw(st.integers(0, 3))
            if data.draw(st.booleans()):
                supervisor[1] += living.pop(pid)
        if data.draw(st.booleans()):
            began += 1
            living[100 + began] = float(data.draw(st.integers(0, 3)))
        supervisor[0] += 1
        take()
    assert sum(account.spent_s.values()) == sum(supervisor) + sum(living.values())
