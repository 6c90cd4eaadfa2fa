"""A stack that the kernel will not let run is refused before it starts."""

from pathlib import Path

import pytest
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import kernel


def limit(proc: Path, value: int) -> Path:
    file = proc / "fs/inotify/max_user_instances"
    file.parent.mkdir(parents=True)
    file.write_text(f"{value}\n")
    return proc


def test_too_few_inotify_instances_are_named_with_the_command_that_helps(tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        kernel.check(36, limit(tmp_path, 128))
    assert str(caught.value) == (
        "fs.inotify.max_user_instances is 128, and 36 Envoys need 144; "
        "raise it with: sudo sysctl -w fs.inotify.max_user_instances=1024"
    )


def test_enough_inotify_instances_and_other_kernels_are_accepted(tmp_path: Path) -> None:
    kernel.check(32, limit(tmp_path, 128))
    kernel.check(1_000, tmp_path / "none")
