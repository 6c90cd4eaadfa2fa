"""`make check` fails on every mistake that it guards against."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def tool(name: str, root: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "tools" / name, root], capture_output=True, text=True)


def write(root: Path, name: str, content: str | bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    subprocess.run(["git", "add", "-f", name], cwd=root, check=True)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("optimizer/a.py", "from spillway_streams import classify\n", "optimizer/a.py:1: optimizer/ imports"),
        (
            "streams/a.py",
            "import os\nimport spillway_lab.render.render\n",
            "streams/a.py:2: streams/ imports",
        ),
        (
            "lab/x/a.go",
            'package x\n\nimport "spillway.dev/relay/internal/table"\n',
            "lab/x/a.go:3: lab/ imports",
        ),
        (
            "contracts/python/spillway_runtime/a.py",
            "from spillway_contracts import names\n",
            "contracts/python/spillway_runtime/a.py:1: spillway_runtime imports spillway_contracts",
        ),
        (
            "optimizer/a.go",
            'package a\n\nimport "spillway.dev/lab/emulator/pool"\n',
            "optimizer/a.go:3: optimizer/ imports",
        ),
        ("optimizer/b.py", "import spillway_simulator\n", "optimizer/b.py:1: optimizer/ imports"),
        ("streams/native/Cargo.toml", '[dependencies]\nspillway-filter-core = "0"\n', "streams/ depends on"),
        ("wasm/Cargo.toml", "[dependencies]\nspillway-spans.workspace = true\n", "wasm/ depends on"),
    ],
)
def test_a_box_that_imports_another_is_named_with_its_line(repository, name, content, expected):
    write(repository, name, content)
    result = tool("layering.py", repository)
    assert result.returncode == 1
    assert expected in result.stdout


def test_two_helpers_of_tests_with_one_name_are_named(repository):
    """Tests of all boxes are collected by one process, which would find only one of the two."""
    write(repository, "optimizer/tests/unit/meshes.py", "")
    write(repository, "optimizer/meshes.py", "")
    assert tool("layering.py", repository).returncode == 0
    write(repository, "lab/tests/component/meshes.py", "")
    result = tool("layering.py", repository)
    assert result.returncode == 1
    assert "meshes.py: lab/tests/component/meshes.py has this name too" in result.stdout


def test_contracts_and_test_servers_may_be_imported_by_every_box(repository):
    write(repository, "optimizer/a.py", "import spillway_contracts\n")
    write(repository, "optimizer/tests/component/test_a.py", "from spillway_lab.testing import servers\n")
    assert tool("layering.py", repository).returncode == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.wasm", b"\0asm"), ("b", b"\x7fELF...."), ("c.txt", b"x" * (1 << 20) + b"x"), ("d.jar", b"PK")],
)
def test_a_committed_artefact_is_named(repository, name, content):
    write(repository, name, content)
    result = tool("artefacts.py", repository)
    assert result.returncode == 1
    assert result.stdout.startswith(name)


def test_the_repository_itself_passes():
    assert tool("layering.py", ROOT).returncode == 0, tool("layering.py", ROOT).stdout
    assert tool("artefacts.py", ROOT).returncode == 0, tool("artefacts.py", ROOT).stdout


def test_stale_constants_are_found(tmp_path):
    """After a change of names.yaml the check fails until the constants are generated again."""
    copy = tmp_path / "contracts"
    subprocess.run(["cp", "-r", ROOT / "contracts", copy], check=True)
    command = [sys.executable, copy / "generate" / "names.py"]
    assert subprocess.run([*command, "--check"], capture_output=True).returncode == 0
    names = copy / "names.yaml"
    names.write_text(names.read_text().replace("otlp_spans: otlp_spans", "otlp_spans: renamed"))
    result = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "stale: contracts/python/spillway_contracts/names.py" in result.stderr


@pytest.fixture
def box(repository) -> Path:
    """Creates a component of one package, with two subpackages that respect their order."""
    write(repository, "tools/rooms.toml", '[spillway_box]\nrooms = ["low", "high"]\n')
    for package in ("", "low/", "high/"):
        write(repository, f"box/spillway_box/{package}__init__.py", '"""What lives here."""\n')
    write(repository, "box/spillway_box/low/a.py", "A = 1\n")
    write(repository, "box/spillway_box/high/b.py", "from spillway_box.low import a\n")
    return repository


def test_rooms_that_keep_to_their_order_pass(box):
    assert tool("rooms.py", box).returncode == 0, tool("rooms.py", box).stdout


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "low/c.py",
            "import os\nfrom spillway_box.high import b\n",
            "box/spillway_box/low/c.py:2: room 'low' imports 'high', which stands after it",
        ),
        (
            "low/c.py",
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import spillway_box.high.b\n",
            "box/spillway_box/low/c.py:4: room 'low' imports 'high'",
        ),
        ("low/a.py", "from spillway_box.low.d import D\n", "modules import one another: low."),
        ("high/__init__.py", "", "box/spillway_box/high/__init__.py: has no docstring"),
        ("new/__init__.py", '"""New."""\n', "'new' is no room of spillway_box"),
        ("loose.py", "L = 1\n", "'loose' is no room of spillway_box"),
    ],
)
def test_what_breaks_the_order_of_rooms_is_named(box, name, content, expected):
    write(box, "box/spillway_box/low/d.py", "from spillway_box.low import a\n\nD = a\n")
    write(box, f"box/spillway_box/{name}", content)
    result = tool("rooms.py", box)
    assert result.returncode == 1
    assert expected in result.stdout


def test_a_package_without_a_table_is_named(box):
    write(box, "box/spillway_other/__init__.py", '"""Other."""\n')
    assert "box/spillway_other: no table in tools/rooms.toml" in tool("rooms.py", box).stdout


def test_a_flat_package_may_have_no_circle_either(box):
    write(box, "tools/rooms.toml", '[spillway_box]\nrooms = ["low", "high"]\n[spillway_flat]\nrooms = []\n')
    write(box, "flat/spillway_flat/__init__.py", '"""Flat."""\n')
    write(box, "flat/spillway_flat/a.py", "import spillway_flat.b\n")
    assert tool("rooms.py", box).returncode == 0, tool("rooms.py", box).stdout
    write(box, "flat/spillway_flat/b.py", "import spillway_flat.a\n")
    assert "spillway_flat: modules import one another" in tool("rooms.py", box).stdout


def test_a_room_that_is_gone_is_named(box):
    write(box, "tools/rooms.toml", '[spillway_box]\nrooms = ["low", "high", "gone"]\n')
    assert "spillway_box: there is no room 'gone'" in tool("rooms.py", box).stdout


def test_this_repository_keeps_to_its_rooms():
    assert tool("rooms.py", ROOT).returncode == 0, tool("rooms.py", ROOT).stdout
