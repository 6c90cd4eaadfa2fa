"""How a stack is brought under a policy, with a supervisor and a control loop that only record."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import periods, switching
from spillway_lab.stack.supervisor import Process
from spillway_lab.stack.switching import Switching


class Recorder:
    """Both a supervisor and a control loop. `done` is what was asked of them, in order."""

    def __init__(self, restarts: bool = True) -> None:
        self.done: list[str] = []
        self._pid, self._restarts = 1, restarts

    def set_policy(self, policy: str) -> None:
        self.done.append(policy)

    def wait_policy(self, policy: str, *_: object) -> str:
        return f"ruleset of {policy}"

    def stop_process(self, name: str) -> None:
        self.done.append(f"stop {name}")

    def start_process(self, name: str) -> None:
        self.done.append(f"start {name}")

    def restart_process(self, name: str) -> None:
        self.done.append(f"restart {name}")
        self._pid += self._restarts

    def processes(self) -> dict[str, Process]:
        process = Process("streams-curves", "Running", True, self._pid, 0, 0, False)
        return {process.name: process}


def switched(tmp_path: Path, recorder: Recorder) -> Switching:
    scenario = SimpleNamespace(document=SimpleNamespace(policies=[]))
    stack = SimpleNamespace(
        supervisor=recorder, streams_settings=tmp_path / "streams.yaml", scenario=scenario, run=tmp_path,
        plan=SimpleNamespace(pods=[]), time_scale=2.0,
    )  # fmt: skip
    return Switching(stack, recorder)


def bring(switch: Switching, *policies: str) -> list[str]:
    return [switch.bring(policy, lambda _: None) for policy in policies]


def test_rounds_of_one_policy_are_separated(tmp_path: Path) -> None:
    """What PAPA changed in a round is not in force in the next one, and Waterfall has no PAPA."""
    recorder = Recorder()
    found = bring(
        switched(tmp_path, recorder), "local", "waterfall", "spillway", "spillway", "waterfall", "waterfall"
    )
    assert recorder.done == [
        "local",
        "waterfall",
        "spillway",
        "waterfall",
        "spillway",
        "waterfall",
        "waterfall",
    ]
    assert found[-1] == "ruleset of waterfall"


def test_papa_stops_before_its_variant_and_starts_after_it(tmp_path: Path) -> None:
    """The variant without PAPA is the optimizer's policy while the process is stopped."""
    recorder = Recorder()
    bring(switched(tmp_path, recorder), "spillway", "spillway-no-papa", "local")
    assert recorder.done == ["spillway", "waterfall", "stop papa", "spillway", "start papa", "local"]


def test_curves_are_frozen_by_a_first_fit_that_is_too_late(tmp_path: Path) -> None:
    """The job starts again with the longest period, and later with its own one."""
    recorder = Recorder()
    switch, settings = switched(tmp_path, recorder), tmp_path / "streams.yaml"
    bring(switch, "spillway-frozen-curves")
    assert yaml.safe_load(settings.read_text())["curves"]["fit_period_s"] == periods.FROZEN_S
    bring(switch, "local")
    assert yaml.safe_load(settings.read_text())["curves"]["fit_period_s"] == 10.0
    assert recorder.done == ["restart streams-curves", "spillway", "restart streams-curves", "local"]


def test_a_job_that_does_not_come_back_is_an_error(tmp_path: Path, monkeypatch) -> None:
    """A run does not go on with curves that are in an unknown state."""
    monkeypatch.setattr(switching, "_READY_S", 0.0)
    with pytest.raises(LabError, match="streams-curves did not start again within 0 s"):
        bring(switched(tmp_path, Recorder(restarts=False)), "spillway-frozen-curves")
