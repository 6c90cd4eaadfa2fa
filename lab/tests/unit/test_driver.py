"""The driver runs what is missing, keeps what is there, and goes on after a failure."""

import json
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner
from made_runs import made
from spillway_lab.commands import experiments as command
from spillway_lab.experiments import driver
from spillway_lab.findings import catalogue, inputs
from spillway_lab.findings.catalogue import Experiment
from spillway_lab.report import results
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import InvalidInput

LAB = Path(__file__).resolve().parents[2]


def benchmark(program: str, **keys: object) -> Experiment:
    """An experiment that runs a Python program."""
    plain = {"title": "t", "question": "q", "kind": "benchmark", "minutes": 0.1}
    return Experiment.model_validate(plain | {"command": [sys.executable, "-c", program]} | keys)


def run_all(
    experiments: dict[str, Experiment], folder: Path, again: bool = False
) -> dict[str, tuple[str, str]]:
    """Runs them and returns outcome and reason by experiment."""
    wanted, problems = driver.jobs(experiments, folder)
    assert problems == []
    done = driver.run_all(wanted, folder, again, Progress())
    return {job.experiment: (outcome, why) for job, outcome, why in done}


def test_the_last_line_of_a_benchmark_is_kept(tmp_path) -> None:
    """Its JSON becomes facts.json, whatever it printed before, with the inputs that it is of."""
    some = {"one": benchmark("print('progress'); print('{\"seconds\": 1.5}'); print()")}
    assert run_all(some, tmp_path) == {"one": ("ran", "")}
    assert json.loads((tmp_path / "one/facts.json").read_text()) == {"seconds": 1.5}
    stamp = inputs.stamp(tmp_path / "one")
    assert stamp is not None
    assert stamp.digest == inputs.of_benchmark(some["one"]).digest
    assert "progress" in (tmp_path / "one.log").read_text()


def test_what_is_there_is_not_run_again(tmp_path) -> None:
    """Only a change of inputs, a missing stamp, or --again runs an experiment once more."""
    count = f"open({str(tmp_path / 'ran')!r}, 'a').write('x'); print('{{}}')"
    some = {"one": benchmark(count)}
    outcomes = [run_all(some, tmp_path)["one"][0] for _ in range(2)]
    assert outcomes == ["ran", "there already"]
    assert run_all(some, tmp_path, again=True)["one"][0] == "ran"
    changed = {"one": benchmark(f"{count} # changed")}
    assert run_all(changed, tmp_path)["one"][0] == "ran"
    assert run_all(changed, tmp_path)["one"][0] == "there already"
    (tmp_path / "one" / inputs.FILE).write_text("{")
    assert run_all(changed, tmp_path)["one"][0] == "ran"
    assert (tmp_path / "ran").read_text() == "xxxx"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "exit code 3, its log is"),
        ("print('done')", "last line: must be one JSON object; got 'done'"),
        ("print([1])", "last line: must be one JSON object; got '[1]'"),
        ("pass", "last line: must be one JSON object; got ''"),
    ],
)
def test_a_failure_stops_no_other(tmp_path, program: str, why: str) -> None:
    """What fails is named with its log, leaves no results, and the next experiment runs."""
    done = run_all({"bad": benchmark(program), "good": benchmark("print('{}')")}, tmp_path)
    assert done["good"] == ("ran", "")
    assert done["bad"][0] == "failed"
    assert why in done["bad"][1]
    assert not (tmp_path / "bad/facts.json").exists()
    assert not (tmp_path / "bad" / inputs.FILE).exists()


def test_a_program_that_is_not_there_is_a_failure(tmp_path) -> None:
    """The error names the program."""
    some = {"one": benchmark("", command=["/no/such/program"])}
    assert run_all(some, tmp_path)["one"] == (
        "failed",
        "/no/such/program: cannot be started: No such file or directory",
    )


def test_an_old_result_does_not_survive_a_run_that_fails(tmp_path) -> None:
    """After a failed run nothing is there that could be taken for its result."""
    run_all({"one": benchmark("print('{}')")}, tmp_path)
    assert run_all({"one": benchmark("raise SystemExit(1)")}, tmp_path)["one"][0] == "failed"
    assert not (tmp_path / "one/facts.json").exists()


def test_a_run_that_does_not_end_is_stopped_with_its_children(tmp_path, monkeypatch) -> None:
    """The process and those that it has started are interrupted first, and leave a sign."""
    ready, sign = tmp_path / "ready", tmp_path / "interrupted"
    inner = f"""
import time
try:
    open({str(ready)!r}, "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    open({str(sign)!r}, "w").close()
"""
    # Not subprocess.run, which kills its child 0.25 s after an interrupt.
    program = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {inner!r}])
try:
    child.wait()
except KeyboardInterrupt:
    child.wait()
"""
    # Children inherit a SIGINT that is ignored, as in a shell's background, but no handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # The time is over as soon as the child runs.
    clock = SimpleNamespace(monotonic=lambda: 1e9 if ready.exists() else 0.0, sleep=time.sleep)
    monkeypatch.setattr(driver, "time", clock)
    try:
        done = run_all({"one": benchmark(program)}, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done["one"][0] == "failed"
    assert done["one"][1].startswith("stopped after 600 s, its log is ")
    assert sign.exists()


def live(tmp_path: Path) -> dict[str, Experiment]:
    some = {"title": "t", "question": "q", "minutes": 1, "kind": "live"}
    (tmp_path / "some.yaml").write_text(
        yaml.safe_dump(some | {"scenarios": [str(LAB / "scenarios/two-clusters.yaml")]})
    )
    return {"some": catalogue.load(tmp_path / "some.yaml")}


def test_scenarios_are_run_by_the_commands_of_the_lab(tmp_path) -> None:
    """A live run is `lab`, a simulated one `simulate`, with the scenario and the folder."""
    (job,), _ = driver.jobs(live(tmp_path), tmp_path)
    assert list(job.command[1:4]) == ["-m", "spillway_lab", "lab"]
    assert list(job.command[4:]) == [
        "--scenario", str(LAB / "experiments/../scenarios/two-clusters.yaml").replace("experiments/../", ""),
        "--out", str(tmp_path / "some"),
    ]  # fmt: skip
    known = catalogue.load(LAB / "experiments/threshold.yaml")
    wanted, _ = driver.jobs({"threshold": known}, tmp_path)
    assert len(wanted) == 25
    assert {each.command[3] for each in wanted} == {"simulate"}
    assert all(Path(each.command[5]).is_file() for each in wanted)


def test_what_is_written_about_a_run_has_no_path_of_the_machine() -> None:
    """Paths below the root are relative to it, and the interpreter is run as it is."""
    command = [sys.executable, "-m", "lab", "--scenario", "/some/root/lab/a/../b.yaml", "--out", "/else"]
    assert driver.relative(command, Path("/some/root")) == [
        sys.executable, "-m", "lab", "--scenario", "lab/b.yaml", "--out", "/else",
    ]  # fmt: skip


def test_a_run_without_readable_results_has_failed(tmp_path, monkeypatch) -> None:
    """Exit code 0 is not enough: run.json must be there, and be right."""
    (job,), _ = driver.jobs(live(tmp_path), tmp_path)
    monkeypatch.setattr(driver, "_process", lambda *_: 0)
    assert "run.json: cannot be read" in driver.run(job, tmp_path, lambda _: None)
    assert not job.done()

    def writes(*_: object) -> int:
        results.write(job.folder, *made({"spillway": 50.0, "waterfall": 60.0}))
        return 0

    monkeypatch.setattr(driver, "_process", writes)
    assert driver.run(job, tmp_path, lambda _: None) == ""
    assert job.done()


def test_progress_shows_the_last_line_of_a_log(tmp_path) -> None:
    """A line that a carriage return replaced is not shown, nor are empty lines."""
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo 1 %\rtwo 2 %\r\n\n\xff")
    assert driver.last_line(log) == "�"
    log.write_bytes(b"one\ntwo 1 %\rtwo 2 %\r\n\n")
    assert driver.last_line(log) == "two 2 %"
    log.write_bytes(b"")
    assert driver.last_line(log) == ""


def test_what_is_simulated_beside_live_runs_takes_none_of_their_minutes(tmp_path) -> None:
    """Each run is of its own kind, and a live one has the time that the experiment says."""
    some = live(tmp_path)["some"]
    both = some.model_copy(update={"minutes": 30, "simulated": some.scenarios})
    (real, simulated), _ = driver.jobs({"some": both}, tmp_path)
    assert (real.command[3], real.minutes) == ("lab", 30)
    assert (simulated.command[3], simulated.minutes) == ("simulate", 1)
    assert simulated.folder == tmp_path / "some/two-clusters-simulated"
    assert scenario.load(Path(simulated.command[5])).name == simulated.folder.name


def test_experiments_are_chosen_by_their_names() -> None:
    """An unknown name is an error that lists those that exist."""
    known = {"a": benchmark("1"), "b": benchmark("2")}
    assert list(command.chosen(known, ())) == ["a", "b"]
    assert list(command.chosen(known, ("b",))) == ["b"]
    with pytest.raises(InvalidInput, match="experiment 'c': unknown; there are: a, b"):
        command.chosen(known, ("c",))


def test_the_list_shows_every_experiment_and_runs_none(tmp_path) -> None:
    """Runs of another kind than the one asked for are not counted."""
    done = CliRunner().invoke(command.command, ["--out", str(tmp_path), "--list"])
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line.split() for line in done.output.splitlines()[2:]}
    assert rows["demo"][1:4] == ["live", "2", "0"]
    assert rows["threshold"][2] == "25"
    assert rows["reaction-time"][2] == "1"
    some = CliRunner().invoke(command.command, ["--out", str(tmp_path), "--list", "--kind", "simulated"])
    rows = {line.split()[0]: line.split() for line in some.output.splitlines()[2:]}
    assert (rows["demo"][2], rows["threshold"][2], rows["solver-time"][2]) == ("1", "25", "0")
    assert not list(tmp_path.glob("*/*/run.json"))
