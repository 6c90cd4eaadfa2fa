"""The Terraform code by itself: format, validity and each module's own tests.

The tests use mock providers. The READMEs' examples are checked too. All run with the oldest and the
newest supported programs.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from example import EXAMPLE
from kube_region import program
from spillway_lab.testing.servers import ROOT

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

TERRAFORM = ROOT / "terraform"
MODULES = sorted({path.parent.name for path in (TERRAFORM / "modules").glob("*/variables.tf")})
# Programs of tools/deploy/pins, and a Terraform if the machine has one.
OLDEST = ["tofu-1.8", "terraform-1.8"]
PROGRAMS = [*OLDEST, "tofu", *(["terraform"] if shutil.which("terraform") else [])]
WRITE_ONLY = "tests/write_only.tftest.hcl"
_HCL = re.compile(r"^```hcl\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(name: str, folder: Path, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of PROGRAMS in the folder. `init` installs into `data`."""
    environment = os.environ | {
        "TF_CLI_CONFIG_FILE": str(ROOT / ".spillway" / "deploy" / "cli.tfrc"),
        "TF_DATA_DIR": str(data),
    }
    path = shutil.which("terraform") if name == "terraform" else program(name)
    command = [path, f"-chdir={folder}", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def good(name: str, folder: Path, data: Path, *arguments: str) -> str:
    done = run(name, folder, data, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def module_tests(folder: Path) -> list[str]:
    """Returns the module's test files that need no write-only arguments."""
    return sorted(
        str(path.relative_to(folder))
        for path in (folder / "tests").glob("*.tftest.hcl")
        if not path.match(WRITE_ONLY)
    )


def test_all_of_it_is_formatted(tmp_path: Path) -> None:
    """`tofu fmt` would change no file."""
    assert good("tofu", TERRAFORM, tmp_path, "fmt", "-check", "-recursive") == ""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("module", MODULES)
def test_module(module: str, name: str, tmp_path: Path) -> None:
    """The module is valid and passes its own tests."""
    folder = TERRAFORM / "modules" / module
    good(name, folder, tmp_path, "init", "-no-color")
    good(name, folder, tmp_path, "validate", "-no-color")
    filters = [f"-filter={file}" for file in module_tests(folder)] if name in OLDEST else []
    printed = good(name, folder, tmp_path, "test", "-no-color", *filters)
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", printed)


@pytest.mark.parametrize("name", OLDEST)
@pytest.mark.parametrize("module", ["cluster", "global"])
def test_write_only_is_refused_by_the_oldest(module: str, name: str, tmp_path: Path) -> None:
    """A program without write-only arguments reports this.

    It does not silently leave a Secret in a state.
    """
    folder = TERRAFORM / "modules" / module
    good(name, folder, tmp_path, "init", "-no-color")
    done = run(name, folder, tmp_path, "test", "-no-color", f"-filter={WRITE_ONLY}")
    assert done.returncode == 1
    assert "write_only_secrets: needs Terraform 1.11 or OpenTofu 1.11" in re.sub(
        r"\s+", " ", done.stdout + done.stderr
    )


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("root", ["multi-region/global", "multi-region/region", "two-regions"])
def test_example_is_valid(root: str, name: str, tmp_path: Path) -> None:
    """Every root module of the examples is valid."""
    folder = TERRAFORM / "examples" / root
    good(name, folder, tmp_path, "init", "-no-color", "-backend=false")
    good(name, folder, tmp_path, "validate", "-no-color")


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_of_the_readmes_are_valid_together(name: str, tmp_path: Path) -> None:
    """The examples of the modules' READMEs together form one valid configuration."""
    shutil.copytree(TERRAFORM / "modules", tmp_path / "modules", ignore=shutil.ignore_patterns(".terraform*"))
    root = tmp_path / "examples" / "all"
    root.mkdir(parents=True)
    shown = [
        block
        for path in (TERRAFORM / "modules").glob("*/README.md")
        for block in _HCL.findall(path.read_text())
    ]
    assert len(shown) == len(MODULES)
    (root / "main.tf").write_text("\n".join(shown))
    good(name, root, tmp_path / "data", "init", "-no-color")
    good(name, root, tmp_path / "data", "validate", "-no-color")
    assert good("tofu", root, tmp_path / "data", "fmt", "-check") == ""


def test_apply_is_a_command() -> None:
    """The documents call it by its path, so it must be executable."""
    assert (EXAMPLE / "apply").stat().st_mode & 0o111
