"""Writes the constants of names.yaml for Python, Go and Rust.

Usage: python contracts/generate/names.py [--check]
"""

import argparse
import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "names.yaml"
HEADER = "Generated from contracts/names.yaml by `make generate`. Do not edit."

Value = str | int
Names = dict[str, dict[str, Value]]


def load() -> Names:
    """Reads names.yaml. Every group is a flat map to strings or whole numbers."""
    names = yaml.safe_load(SOURCE.read_text())
    for group, entries in names.items():
        for key, value in entries.items():
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise SystemExit(
                    f"{SOURCE.name}: {group}.{key}: {value!r} is neither a string nor a whole number"
                )
            if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
                raise SystemExit(f"{SOURCE.name}: {group}.{key}: keys are lower_snake_case")
    return names


def constants(names: Names) -> list[tuple[str, Value]]:
    """Returns the constants as (group_key, value), in the order of names.yaml."""
    return [(f"{group}_{key}", value) for group, entries in names.items() for key, value in entries.items()]


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def python(names: Names) -> str:
    """Renders names.py."""
    lines = [f'"""{HEADER}"""', ""]
    lines += [f"{name.upper()} = {json.dumps(value)}" for name, value in constants(names)]
    return "\n".join(lines) + "\n"


def go(names: Names) -> str:
    """Renders names.go."""
    lines = [
        "// Code generated from contracts/names.yaml by `make generate`. DO NOT EDIT.",
        "",
        "package names",
        "",
        "const (",
    ]
    rows = [(camel(name), json.dumps(value)) for name, value in constants(names)]
    width = max(len(name) for name, _ in rows)
    lines += [f"\t{name.ljust(width)} = {value}" for name, value in rows]
    return "\n".join([*lines, ")"]) + "\n"


def rust(names: Names) -> str:
    """Renders lib.rs."""
    lines = [f"//! {HEADER}", ""]
    for name, value in constants(names):
        kind = "&str" if isinstance(value, str) else "u64"
        line = f"pub const {name.upper()}: {kind} = {json.dumps(value)};"
        if len(line) > 100:
            line = f"pub const {name.upper()}: {kind} =\n    {json.dumps(value)};"
        lines.append(line)
    return "\n".join(lines) + "\n"


TARGETS = {
    ROOT / "python/spillway_contracts/names.py": python,
    ROOT / "go/names/names.go": go,
    ROOT / "rust/src/lib.rs": rust,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    check = parser.parse_args().check
    names, stale = load(), []
    for path, render in TARGETS.items():
        text = render(names)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT.parent)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
