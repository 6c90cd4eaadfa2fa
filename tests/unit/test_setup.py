"""The set-up reports what is missing before it does anything. Clusters are data, not code."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "env", "mkdir", "flock", "grep", "head", "sort", "printf", "cat", "dirname")
PREREQUISITES = {
    "python3.11": "Python 3.11.9",
    "go": "go version go1.27.1 linux/amd64",
    "java": 'openjdk version "21.0.1"',
    "mvn": "Apache Maven 3.9.1",
    "cargo": "cargo 1.95.0",
    "rustup": "rustup 1.28.0",
}


def checkout(tmp_path: Path) -> Path:
    """Copies only the set-up script, which here can only check and complain."""
    copy = tmp_path / "checkout"
    (copy / "infra/local").mkdir(parents=True)
    shutil.copy(ROOT / "infra/local/setup", copy / "infra/local/setup")
    return copy


def programs(tmp_path: Path, present: dict[str, str]) -> Path:
    """Creates a folder with the tools that the script needs, and stand-ins that print a version."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    for name, version in present.items():
        (folder / name).write_text(f"#!/bin/sh\necho '{version}'\n")
        (folder / name).chmod(0o755)
    return folder


def run(tmp_path: Path, present: dict[str, str]) -> subprocess.CompletedProcess:
    path = str(programs(tmp_path, present))
    return subprocess.run(
        [checkout(tmp_path) / "infra/local/setup"], env={"PATH": path}, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", sorted(PREREQUISITES.keys() - {"python3.11"}))
def test_a_missing_prerequisite_is_named_with_a_remedy(tmp_path, name):
    result = run(tmp_path, {k: v for k, v in PREREQUISITES.items() if k != name})
    assert result.returncode == 69
    assert re.search(rf"{name}: not found, version [\d.]+ or newer is needed\. Install", result.stderr)


def test_all_missing_ones_are_named_at_once(tmp_path):
    result = run(tmp_path, {})
    assert result.returncode == 69
    for name in ("python", "go", "java", "mvn", "cargo", "rustup"):
        assert f"  {name}: " in result.stderr


def test_a_version_that_is_too_old_is_named_with_the_one_that_is_needed(tmp_path):
    result = run(
        tmp_path, PREREQUISITES | {"go": "go version go1.19.3 linux/amd64", "python3.11": "Python 3.9.2"}
    )
    assert result.returncode == 69
    assert "go: version 1.19.3 is too old, 1.26 or newer is needed" in result.stderr
    assert "python: found '3.9.2'" in result.stderr


NAMES = "west|east|us-west|us-east|frontend|backend"
# Files that hold data: invented for tests and benchmarks, or figures from papers.
DATA = re.compile(
    r"(^|/)(tests|\w+_tests|testing|testdata|golden|benchmarks)/|_test\.go:|_tests\.rs:|contracts/generate/golden_|lab/generators/|optimizer/spillway_optimizer/scenarios/"
)


@pytest.mark.parametrize(
    ("step", "failing"),
    [("filter", "cargo"), ("native", "cargo"), ("kafka", "mkdir"), ("python_environment", "python")],
)
def test_a_step_fails_with_its_first_command(tmp_path, step, failing):
    """A failing step does not count as done, and its result is not replaced by an earlier build.

    `set -e` has no effect inside a step whose status is tested.
    """
    (tmp_path / "bin").mkdir()
    for name in ("cargo", "rustup", "mvn", "cp", "mv", "mkdir", "rm", "python"):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/ran\nexit {int(name == failing)}\n")
        program.chmod(0o755)
    text = (ROOT / "infra/local/setup").read_text()
    function = re.search(rf"^{step}\(\) {{\n.*?^}}\n", text, re.DOTALL | re.MULTILINE)[0]
    variables = f"set -e; PATH={tmp_path}/bin:$PATH; home={tmp_path}; packages=$home; base_python=python; python=python"
    done = subprocess.run(["bash", "-c", f"{variables}\n{function}\nif ! {step}; then exit 7; fi"], cwd=ROOT)
    assert done.returncode == 7
    assert (tmp_path / "ran").read_text().split()[-1] == failing


def test_the_set_up_brings_what_checks_ask_of_cargo_beyond_a_minimal_toolchain():
    """`cargo clippy` and `cargo fmt` are components that rustup's minimal profile leaves out."""
    component = {"clippy": "clippy", "fmt": "rustfmt"}
    asked = set(re.findall(r"cargo (clippy|fmt)\b", (ROOT / "tools/check").read_text()))
    added = re.search(r"rustup component add ([\w ]+) &&", (ROOT / "infra/local/setup").read_text())[
        1
    ].split()
    assert asked == set(component) and {component[name] for name in asked} <= set(added)


def test_no_code_names_a_cluster_or_a_service_of_the_lab():
    """Names of regions and services are data.

    They appear only in scenarios, tests, compose files and golden files.
    """
    listed = subprocess.run(
        ["git", "grep", "-nIwiE", NAMES, "--", "*.py", "*.go", "*.rs"],
        cwd=ROOT, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    code = [line for line in listed if not DATA.search(line) and names_in_code(line)]
    assert [line for line in code if not in_rust_tests(line)] == []


def names_in_code(line: str) -> bool:
    """Whether the line's code contains a name.

    Comments are ignored, because there these names are English words. So are the addresses of
    modules.
    """
    name, _, text = line.split(":", 2)
    text = re.sub(r'"github\.com/[^"]*"', "", text).partition("#" if name.endswith(".py") else "//")[0]
    return re.search(rf"(?i)\b({NAMES})\b", text) is not None


def in_rust_tests(line: str) -> bool:
    """Whether a line that grep found (file:number:text) is below #[cfg(test)]."""
    name, number, _ = line.split(":", 2)
    above = (ROOT / name).read_text().splitlines()[: int(number)]
    return any("#[cfg(test)]" in text for text in above)
