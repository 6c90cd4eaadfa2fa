"""`spillway certify`, which people and the running optimizer start."""

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from spillway_optimizer.__main__ import main
from spillway_optimizer.commands import certify as command

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden" / "4_problem.json"


@pytest.fixture
def certify(monkeypatch, capsys):
    """Returns a function that runs the command here, without its priority and its memory limit.

    It returns the exit code and the output.
    """
    priorities = []
    monkeypatch.setattr(command.os, "nice", priorities.append)
    monkeypatch.setattr(command, "_limit_memory", lambda: None)

    def run(*arguments: str, given: str = "") -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["spillway", "certify", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        code = main()
        assert priorities.pop() == 19
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


def test_a_problem_is_proven_to_the_gap_from_a_file_and_from_stdin(certify):
    """The bound is below the cost, and the shares of each row that can be called sum to one."""
    done = certify(str(GOLDEN), "--relative-gap", "0.0001")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and 0 <= found["relative_gap"] <= 1e-4
    assert found["bound_usd_per_hour"] <= found["usd_per_hour"] and found["beyond_usd_per_hour"] == 0
    assert sum(found["shares"][0][0]) == pytest.approx(1)
    again = json.loads(certify("--relative-gap", "0.0001", given=GOLDEN.read_text()).stdout)
    assert again["usd_per_hour"] == pytest.approx(found["usd_per_hour"], rel=1e-4)


def test_a_known_routing_is_a_start(certify):
    """After a coarse solve, the answer costs no more than the optimum that was given."""
    best = json.loads(certify(str(GOLDEN), "--relative-gap", "0.00001").stdout)
    given = {**json.loads(GOLDEN.read_text()), "shares": best["shares"]}
    coarse = json.loads(
        certify("--relative-gap", "0.9", "--seconds", "0.001", given=json.dumps(given)).stdout
    )
    assert coarse["usd_per_hour"] <= best["usd_per_hour"] * (1 + 1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "-: Expecting property name"),
        ("{}", "-: problem document: KeyError: 'demand_rps'"),
        ("[]", "-: problem document: TypeError"),
        ({"shares": [[1.0]]}, "-: shares: allowed: numbers of at least 0, of the shape [2, 2, 2]"),
        ({"shares": [[[1.0, 0.0], [0.0]]]}, "-: shares: setting an array element"),
        ({"usd_per_ms": 0.0}, "-: usd_per_ms: 0.0 must be a number above 0"),
    ],
)
def test_input_that_cannot_be_used_is_one_sentence(certify, given, message):
    """The command prints it on stderr, and ends with code 1."""
    if isinstance(given, dict):
        given = json.dumps(json.loads(GOLDEN.read_text()) | given)
    done = certify(given=given)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)


def test_a_file_that_is_missing_is_named(certify):
    done = certify("/nowhere/problem.json")
    assert done.returncode == 1 and "/nowhere/problem.json" in done.stderr


def test_memory_beyond_the_limit_is_refused_to_the_command_alone():
    """It ends by itself, and no machine runs out of memory for it."""
    code = (
        "import sys; from spillway_optimizer.commands import certify; certify._MOST_BYTES = 1 << 20; "
        "sys.argv = ['spillway', 'certify']; from spillway_optimizer.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=GOLDEN.read_text(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0 and done.stdout == ""


def test_the_optimizer_starts_without_the_reference_solver():
    """The imports of the leader and of PAPA do not load OR-Tools. `certify` does, when it solves.

    A leader loads it later, if it solves by `exact` or if a limit on destinations costs too much.
    """
    code = (
        "import sys, spillway_optimizer.__main__, spillway_optimizer.service.loop, "
        "spillway_optimizer.papa.worker; sys.exit(any(name.startswith('ortools') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
