"""The time that threads wait for a core, from the kernel's counters."""

import os
from pathlib import Path

from spillway_lab.load import run_delay


def thread(root: Path, pid: int, tid: int, text: str) -> None:
    folder = root / str(pid) / "task" / str(tid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(text)


def test_waiting_of_all_threads_is_added_up(tmp_path: Path) -> None:
    """Two threads wait 1 s and 0.5 s more, a new one 0.25 s. Other processes do not count."""
    for tid, text in ((7, "5 1000000000 9\n"), (8, "5 0 9\n")):
        thread(tmp_path, 7, tid, text)
    thread(tmp_path, 9, 9, "1 1 1\n")
    before = run_delay.read([7], tmp_path)
    for tid, text in ((7, "5 2000000000 9\n"), (8, "5 500000000 9\n"), (10, "5 250000000 9\n")):
        thread(tmp_path, 7, tid, text)
    assert run_delay.between(before, run_delay.read([7], tmp_path)) == 1.75


def test_what_the_kernel_does_not_count_is_unknown(tmp_path: Path) -> None:
    """Without counters, or with a text that has none, the delay is unknown and not zero."""
    assert run_delay.between({}, run_delay.read([7], tmp_path)) is None
    thread(tmp_path, 7, 7, "\n")
    assert run_delay.between({}, run_delay.read([7], tmp_path)) is None


def test_a_process_of_this_machine_can_be_read() -> None:
    """This process has threads, and their delays do not fall."""
    before = run_delay.read([os.getpid()])
    after = run_delay.read([os.getpid()])
    assert before
    assert all(after[key] >= delay for key, delay in before.items() if key in after)
