"""Every `make` target installs the programs that it starts, on a machine where nothing is built.

Each target runs in a copy of the checkout without .spillway, with a shell that only records its
commands. The commands that install programs do run, with a stand-in for the compiler. The programs
that are there when the tests start were therefore made by the real scripts.
"""

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from spillway_lab.testing import programs

ROOT = Path(__file__).resolve().parents[2]
TARGETS = re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
SETUP = (ROOT / "infra/local/setup").read_text()
SET_UP = set(re.findall(r'(?:go_tool|go_box \S+|-o "\$bin/)\s?([a-z][a-z-]+)', SETUP))
PINS = [line.split() for line in (ROOT / "tools/deploy/pins").read_text().splitlines() if line[0] != "#"]
KUBERNETES = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
CHARTS = {"helm", "kubeconform", "schemas", "nats-server-config-reloader"}
EXPORTERS = {"prometheus-nats-exporter", "redis_exporter"}
BROUGHT = {"golangci-lint", "promtool", "schemas", *KUBERNETES, *(pin[0] for pin in PINS)}
SHELL = r"""#!/usr/bin/env python3
import json, os, re, subprocess, sys
line = sys.argv[-1]
if re.match(r"\s*(infra/local/setup|tools/(bring|\w+/build))\b", line):
    sys.exit(subprocess.run(["bash", "-c", line]).returncode)
walked = [*os.walk(".spillway/bin"), *os.walk(".spillway/deploy/mirror")]
there = [name for _, _, names in walked for name in names] + ["schemas"] * os.path.isdir(".spillway/schemas")
with open(os.environ["RAN"], "a") as ran:
    ran.write(json.dumps([line, there]) + "\n")
"""
# It reports the pinned hash, and a module folder with the subfolders that pins keep.
GO = r"""#!/usr/bin/env bash
case $1 in
  env) [ "$2" = GOOS ] && echo linux || echo amd64 ;;
  list) echo v1.35.0 ;;
  mod) awk -v m="${!#}" -v d="$MODULE" '$2 "@" $3 == m { printf "{\"Sum\": \"%s\", \"Dir\": \"%s\"}", $4, d; exit }' pins ;;
  build) while [ "$1" != -o ]; do shift; done; touch "$2"; chmod +x "$2" ;;
esac
"""
STAND_IN_SETUP = """#!/usr/bin/env bash
mkdir -p .spillway/bin .spillway/venv/bin
touch {programs}
printf '#!/bin/sh\\nmkdir -p "$2"\\n' >.spillway/venv/bin/python && chmod +x .spillway/venv/bin/python
"""


@dataclass(frozen=True)
class Run:
    """A line of a recipe, and the programs that existed when it was about to run."""

    line: str
    there: set[str]


@dataclass(frozen=True)
class Checkout:
    folder: Path

    def run(self, *command: str | Path) -> list[Run]:
        """Returns the recipe lines that ran. The command must succeed."""
        done = self.execute(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return [Run(line, set(there)) for line, there in map(json.loads, self._ran.read_text().splitlines())]

    def execute(self, *command: str | Path) -> subprocess.CompletedProcess:
        self._ran.write_text("")
        environment = {"PATH": f"{self.folder}/stand-ins:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
        environment |= {"RAN": str(self._ran), "MODULE": str(self.folder / "module")}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    @property
    def _ran(self) -> Path:
        return self.folder / "ran"

    def fresh(self) -> None:
        shutil.rmtree(self.folder / ".spillway", ignore_errors=True)

    def make(self, target: str) -> list[Run]:
        self.fresh()
        return self.run("make", f"SHELL={self.folder}/stand-ins/sh", target)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Copies Makefile and tools/, and adds stand-ins for the shell, the compiler and the set-up."""
    tmp_path = tmp_path_factory.mktemp("checkout")
    (tmp_path / "infra/local").mkdir(parents=True)
    (tmp_path / "stand-ins").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    setup = STAND_IN_SETUP.format(programs=" ".join(f".spillway/bin/{name}" for name in sorted(SET_UP)))
    for name, text in (("infra/local/setup", setup), ("stand-ins/sh", SHELL), ("stand-ins/go", GO)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for word in (word for pin in PINS for word in pin if word.startswith("keep=")):
        (tmp_path / "module" / word.removeprefix("keep=")).mkdir(parents=True, exist_ok=True)
    return Checkout(tmp_path)


def files_of(line: str) -> set[Path]:
    """Returns the test files that a recipe's line runs."""
    words = shlex.split(line)
    if "pytest" in words:
        words = words[words.index("pytest") + 1 :]
        wanted = words[words.index("-m") + 1].split(" and ") if "-m" in words else []
        found = [
            file
            for word in words
            if (ROOT / word).exists()
            for file in ([ROOT / word] if word.endswith(".py") else (ROOT / word).rglob("test_*.py"))
        ]
        return {file for file in found if all(_marked(file, mark) for mark in wanted)}
    if "test" in words and "go" in words:
        folder = ROOT / words[1] if words[0] == "cd" else ROOT
        packages = [word for word in words[words.index("test") + 1 :] if word.startswith(".")]
        return {
            file
            for package in packages
            for file in (folder / package.removesuffix("...")).glob(
                "**/*_test.go" if package.endswith("...") else "*_test.go"
            )
        }
    return set()


def _marked(file: Path, mark: str) -> bool:
    there = f"pytest.mark.{mark.removeprefix('not ')}" in file.read_text()
    return there != mark.startswith("not ")


@functools.cache
def with_helpers(file: Path) -> set[Path]:
    """Returns the file and the modules beside it that it imports, including indirect imports."""
    found: set[Path] = set()
    left = [file, file.parent / "conftest.py"]
    while left:
        file = left.pop()
        if file.exists() and file not in found and file != Path(__file__):
            found.add(file)
            names = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
            left += [file.parent / f"{name}.py" for name in names]
    return found


@functools.cache
def asked(line: str) -> dict[str, Path]:
    """Returns the programs that a line's tests start, each with a file that names it."""
    found = {}
    for file in set().union(*map(with_helpers, files_of(line))):
        text = file.read_text()
        # The name is quoted and not a part of a path, as "helm" is in infra / "helm".
        names = set(re.findall(r"(?<!/ )[\"'/]([\w.-]+)[\"']", text)) & (BROUGHT | SET_UP)
        if ".spillway/schemas" in text:
            names.add("schemas")
        if '"cli.tfrc"' in text:
            names |= providers()
        found |= dict.fromkeys(names, file)
    return found


@functools.cache
def providers() -> set[str]:
    """Returns the providers that the modules of terraform/ require."""
    texts = [file.read_text() for file in (ROOT / "terraform").rglob("*.tf")]
    return {f"terraform-provider-{name}" for t in texts for name in re.findall(r'"hashicorp/(\w+)"', t)}


@pytest.fixture(scope="module")
def runs(checkout: Checkout) -> dict[str, list[Run]]:
    """Returns the lines that each target runs."""
    return {target: checkout.make(target) for target in TARGETS}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_target_brings_each_program_that_its_tests_start(runs: dict[str, list[Run]], target: str):
    missing = {
        f"{name}, of {file.relative_to(ROOT)}"
        for run in runs[target]
        for name, file in asked(run.line).items()
        if name not in run.there
    }
    assert missing == set(), f"make {target}: not there when its tests start"


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"help", "clean", "setup", "images"}))
def test_a_target_sets_up_before_it_runs_anything(runs: dict[str, list[Run]], target: str):
    assert [run.line for run in runs[target] if not run.there >= SET_UP] == []
    assert runs[target] != []


def test_check_brings_the_lints_of_go(runs: dict[str, list[Run]]):
    """tools/check itself brings nothing."""
    check = next(run for run in runs["check"] if "tools/check" in run.line)
    assert "golangci-lint" in check.there and "golangci-lint run" in (ROOT / "tools/check").read_text()


def test_the_programs_that_tests_start_are_found_in_their_sources(runs: dict[str, list[Run]]):
    """The tests above rely on the names by which tests start programs.

    They must be recognised in every way in which tests write them.
    """
    found = {
        target: set().union(*(asked(run.line) for run in runs[target]))
        for target in ("test-unit", "test-component", "test-deploy")
    }
    assert found["test-unit"] & BROUGHT == set()
    assert found["test-component"] & BROUGHT == {"etcd", "kube-apiserver", "promtool", *EXPORTERS, *CHARTS}
    assert found["test-component"] >= {"spillway-relay", "vegeta", "toxiproxy-server"}
    assert found["test-deploy"] & BROUGHT == BROUGHT - {"golangci-lint", "promtool", *EXPORTERS}
    assert SET_UP >= {"process-compose", "vegeta", "protoc-gen-go", "spillway-collector", "spillway-relay"}


def test_the_error_of_a_missing_program_names_the_command_that_brings_it(checkout, monkeypatch):
    monkeypatch.setattr(programs, "_BIN", checkout.folder / ".spillway/bin")
    checkout.fresh()
    for name in sorted(BROUGHT - {"schemas"} - providers()):
        with pytest.raises(FileNotFoundError, match=re.escape(f"/{name} is missing: ")) as error:
            programs.program(name)
        checkout.run("bash", "-c", re.search("`(.*)`", str(error.value))[1])
        assert programs.program(name) == str(checkout.folder / ".spillway/bin" / name)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("helmet", "helmet: not in tools/deploy/pins; there are: helm kubeconform "),
        ("kube-proxy", "kube-proxy: not built here; there are: etcd kube-apiserver "),
        ("", "usage: tools/bring NAME..."),
    ],
)
def test_a_program_that_nobody_knows_is_refused_with_those_that_there_are(checkout, wanted, expected):
    done = checkout.execute("tools/bring", *wanted.split())
    assert done.returncode == 64 and expected in done.stderr


def test_images_need_docker_alone_and_packages_what_packs_them(runs: dict[str, list[Run]]):
    """Building images needs neither a compiler nor our own programs."""
    assert [run.line for run in runs["images"]] == ["tools/images"]
    [run] = runs["package"]
    assert run.line == "tools/package" and run.there >= {"helm", "crane"}
