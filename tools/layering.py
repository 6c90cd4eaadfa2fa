"""Names every import of one box by another, and every helper of tests whose name is taken.

Boxes share only contracts/. One process collects the tests of all boxes, and each folder of tests
is on its path, so of two helpers with one name only one can be imported.

Usage: python tools/layering.py [ROOT]
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

# Python package of each box, and the folder that owns it.
PACKAGES = {
    "spillway_streams": "streams",
    "spillway_native": "streams",
    "spillway_optimizer": "optimizer",
    "spillway_publisher": "rule-publisher",
    "spillway_clickhouse": "infra",
    "spillway_lab": "lab",
    "spillway_simulator": "lab",
}
# Packages of contracts/ that import nothing else of the project.
FOUNDATIONS = {"spillway_runtime": "contracts/python/spillway_runtime"}
# Tests and benchmarks of any box may start real servers with these helpers, which import no box.
SHARED_BY_TESTS = "spillway_lab.testing"
TESTING_FOLDERS = {"tests", "benchmarks"}
# The first two parts of the names of Go modules, and crates.
MODULES = {
    "spillway.dev/relay": "rule-publisher",
    "spillway.dev/lab": "lab",
    "spillway.dev/collectors": "collectors",
}
CRATES = {
    "spillway-filter": "wasm",
    "spillway-filter-core": "wasm",
    "spillway-native": "streams",
    "spillway-spans": "streams",
    "spillway-simulation": "lab",
    "spillway-simulator": "lab",
}


def sources(root: Path, pattern: str) -> list[Path]:
    """Returns the files of the pattern that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [root / line for line in listed.stdout.splitlines() if (root / line).exists()]


def python_imports(path: Path) -> list[tuple[int, str]]:
    """Returns (line, module) of every absolute import in the file."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append((node.lineno, node.module))
    return names


def crossing_python(root: Path) -> list[str]:
    """Returns a line for each Python import of another box's package."""
    problems = []
    for path in sources(root, "*.py"):
        relative = path.relative_to(root)
        box, in_tests = relative.parts[0], not TESTING_FOLDERS.isdisjoint(relative.parts)
        if box in ("tests", "tools"):
            continue  # these look at all boxes together
        for line, name in python_imports(path):
            if foundation := _below_a_foundation(relative, name):
                problems.append(f"{relative}:{line}: {foundation} imports {name}")
            owner = PACKAGES.get(name.split(".")[0])
            if owner is None or owner == box or (in_tests and name.startswith(SHARED_BY_TESTS)):
                continue
            problems.append(f"{relative}:{line}: {box}/ imports {name} of {owner}/")
    return problems


def _below_a_foundation(path: Path, imported: str) -> str | None:
    """Returns the foundation whose file imports another package of the project, or None."""
    root = imported.split(".")[0]
    for name, folder in FOUNDATIONS.items():
        if path.is_relative_to(folder) and root.startswith("spillway") and root != name:
            return name
    return None


def crossing_go(root: Path) -> list[str]:
    """Returns a line for each Go import of another box's module."""
    problems = []
    for path in sources(root, "*.go"):
        relative = path.relative_to(root)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := re.match(r'\s*(?:import\s+)?(?:[\w.]+\s+)?"(spillway\.dev/[^"/]+)', line):
                owner = MODULES.get(match[1])
                if owner and owner != relative.parts[0]:
                    problems.append(
                        f"{relative}:{number}: {relative.parts[0]}/ imports {match[1]} of {owner}/"
                    )
    return problems


def crossing_rust(root: Path) -> list[str]:
    """Returns a line for each Cargo dependency on another box's crate."""
    problems = []
    for path in sources(root, "*Cargo.toml"):
        relative = path.relative_to(root)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if name := re.match(r"\s*([\w-]+)(?:\.\w+)*\s*=", line):
                owner = CRATES.get(name[1])
                if owner and owner != relative.parts[0]:
                    problems.append(
                        f"{relative}:{number}: {relative.parts[0]}/ depends on {name[1]} of {owner}/"
                    )
    return problems


def taken_names(root: Path) -> list[str]:
    """Returns a line for each helper module of tests that has the name of another."""
    found: dict[str, Path] = {}
    problems = []
    for path in sources(root, "*.py"):
        relative = path.relative_to(root)
        helper = (
            "tests" in relative.parts and not path.stem.startswith("test_") and path.name != "conftest.py"
        )
        if helper and found.setdefault(path.stem, relative) != relative:
            problems.append(f"{relative}: {found[path.stem]} has this name too; tests could import only one")
    return problems


def main(root: Path) -> int:
    problems = [*crossing_python(root), *crossing_go(root), *crossing_rust(root), *taken_names(root)]
    print("\n".join(problems) if problems else json.dumps({"crossing_imports": 0}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
