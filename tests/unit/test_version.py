"""tools/version.py: every place has the version of the file VERSION, and one command raises it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import version

ROOT = Path(__file__).resolve().parents[2]
NEXT = "97.98.99"


def tool(*arguments: str | Path) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tools/version.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copies all files that contain the version into a git repository of their own."""
    for path in {path for path, _ in version.places(ROOT)} | {ROOT / "VERSION"}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_every_place_has_the_version_of_the_file():
    """Every kind of place is found. A file in another format would otherwise be skipped."""
    assert version.differing(ROOT) == []
    found = {pattern for path, pattern in version.places(ROOT) if re.search(pattern, path.read_text(), re.M)}
    assert found == set(version.PLACES.values())


def test_a_chart_needs_its_library_in_the_same_version(checkout: Path):
    """Each chart names the version of the chart, its images and its dependency.

    An outdated one is reported with file and line.
    """
    for chart in checkout.glob("infra/helm/spillway-*/Chart.yaml"):
        text = chart.read_text()
        current = (checkout / "VERSION").read_text().strip()
        for place in re.finditer(r"ersion: (\d+\.\d+\.\d+)", text):
            chart.write_text(text[: place.start(1)] + NEXT + text[place.end(1) :])
            line = text.count("\n", 0, place.start()) + 1
            expected = f"{chart.relative_to(checkout)}:{line}: {NEXT}, VERSION has {current}\n"
            done = tool("--check", checkout)
            assert (done.returncode, done.stdout) == (1, expected)
        chart.write_text(text)


def test_one_command_raises_every_place(checkout: Path):
    """Afterwards the old version appears only where it has another meaning.

    Nothing else has changed.
    """
    before = {
        path: path.read_text() for path in checkout.rglob("*") if path.is_file() and ".git" not in path.parts
    }
    current = before[checkout / "VERSION"].strip()
    done = tool(NEXT, checkout)
    assert done.returncode == 0
    changed = {str(path.relative_to(checkout)) for path, text in before.items() if path.read_text() != text}
    assert set(done.stdout.split()) == changed
    assert tool("--check", checkout).returncode == 0
    for path, text in before.items():
        assert path.read_text().replace(NEXT, current) == text, path


def test_the_lock_files_are_those_of_the_raised_crates(checkout: Path):
    """Each lock file has its workspace's crates in the new version.

    cargo build --locked requires this.
    """
    tool(NEXT, checkout)
    for lock in checkout.rglob("Cargo.lock"):
        versions = re.findall(r'^name = "(?:spillway-[\w-]+)"\nversion = "(.+)"$', lock.read_text(), re.M)
        assert versions and set(versions) == {NEXT}, lock


@pytest.mark.parametrize("wrong", ["1.2", "v1.2.3", "1.2.3-rc.1", "next"])
def test_what_is_no_version_changes_nothing(checkout: Path, wrong: str):
    done = tool(wrong, checkout)
    assert done.returncode == 64 and done.stderr.startswith(f"{wrong}: no version")
    assert tool("--check", checkout).returncode == 0
