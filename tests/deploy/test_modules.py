"""The Terraform code by itself: form, validity, each module's own tests with mock providers, and READMEs' examples."""

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
_HCL = re.compile(r"^```hcl\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tofu(folder: Path, data: Path, *arguments: str) -> str:
    environment = os.environ | {
        "TF_CLI_CONFIG_FILE": str(ROOT / ".spillway" / "deploy" / "cli.tfrc"),
        "TF_DATA_DIR": str(data),
    }
    command = [program("tofu"), f"-chdir={folder}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_of_it_is_formatted(tmp_path: Path) -> None:
    """`tofu fmt` would change no file."""
    assert tofu(TERRAFORM, tmp_path, "fmt", "-check", "-recursive") == ""


@pytest.mark.parametrize("module", MODULES)
def test_module(module: str, tmp_path: Path) -> None:
    """The module is valid, and holds what its own tests say of it."""
    folder = TERRAFORM / "modules" / module
    tofu(folder, tmp_path, "init", "-no-color")
    tofu(folder, tmp_path, "validate", "-no-color")
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", tofu(folder, tmp_path, "test", "-no-color"))


@pytest.mark.parametrize("root", ["multi-region/global", "multi-region/region", "two-regions"])
def test_example_is_valid(root: str, tmp_path: Path) -> None:
    """Every root of the examples is valid."""
    folder = TERRAFORM / "examples" / root
    tofu(folder, tmp_path, "init", "-no-color", "-backend=false")
    tofu(folder, tmp_path, "validate", "-no-color")


def test_examples_of_the_readmes_are_valid_together(tmp_path: Path) -> None:
    """What the modules' READMEs show is one configuration, which is valid."""
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
    tofu(root, tmp_path / "data", "init", "-no-color")
    tofu(root, tmp_path / "data", "validate", "-no-color")
    assert tofu(root, tmp_path / "data", "fmt", "-check") == ""


def test_the_readme_names_commands_that_tests_run() -> None:
    """Each way of calling `apply` that terraform/README.md shows is one that test_regions.py takes."""
    shown = set(
        re.findall(r"^\./apply ?(.*?)\s*(?:#.*)?$", (TERRAFORM / "README.md").read_text(), re.MULTILINE)
    )
    assert shown == {"", "plan", "remove north", "destroy"}
    assert (EXAMPLE / "apply").stat().st_mode & 0o111
