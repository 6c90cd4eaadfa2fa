"""How busy the machine is: what is read from /proc, and when a run counts as disturbed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.load import machine
from spillway_lab.load.machine import Busyness, Reading

STAT = "cpu  100 50 150 600 50 20 20 10 30 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n"
PRESSURE = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\nfull avg10=0.00 total=0\n"


def test_files_of_proc_are_read() -> None:
    """Idle and waiting for disks are not busy, stolen time is, and a guest counts once."""
    assert machine.parse_stat(STAT) == (2, 350, 1000)
    assert machine.parse_pressure(PRESSURE) == 4_000_000


def test_shares_are_those_between_two_readings() -> None:
    """300 of 400 ticks busy, and 0.5 s of waiting in 2 s."""
    before, after = Reading(10, 2, 100, 1000, 1_000_000), Reading(12, 2, 400, 1400, 1_500_000)
    assert machine.between(before, after) == Busyness(2, 0.75, 0.25)


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    """Without the files nothing is known, and nothing is called disturbed for that."""
    nothing = machine.read(tmp_path / "stat", tmp_path / "pressure")
    found = machine.between(nothing, nothing)
    assert (found.utilisation, found.pressure, found.disturbed) == (None, None, False)
    assert machine.together([found]) == found
    assert str(found) == "1 cores unknown busy, pressure unknown"


@pytest.mark.parametrize(
    ("utilisation", "pressure", "disturbed"),
    [(0.75, 0.2, False), (0.76, 0.0, True), (0.1, 0.21, True), (None, 0.3, True), (0.9, None, True)],
)
def test_a_run_above_either_limit_is_disturbed(utilisation, pressure, disturbed: bool) -> None:
    """The limits are 75 % of the cores and 20 % pressure, and the limit itself is allowed."""
    assert Busyness(2, utilisation, pressure).disturbed is disturbed


def test_this_machine_can_be_read() -> None:
    """The files of this machine give counters that do not fall."""
    before, after = machine.read(), machine.read()
    assert after.all_ticks >= before.all_ticks
    assert after.at_s > before.at_s


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    """Whatever the files hold, cores are at least one and counters are not negative."""
    cores, busy, total = machine.parse_stat(text)
    assert cores >= 1
    assert total >= busy >= 0
    assert (machine.parse_pressure(text) or 0) >= 0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_together_is_between_the_parts(values: list[tuple[float, float]]) -> None:
    """The mean of several rounds is never outside of them."""
    found = machine.together([Busyness(2, u, p) for u, p in values])
    assert min(u for u, _ in values) - 1e-9 <= found.utilisation <= max(u for u, _ in values) + 1e-9
