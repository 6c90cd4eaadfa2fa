"""Writes the row schemas of rows.yaml for Python.

Usage: python contracts/generate/rows.py [--check]
"""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TARGET = ROOT / "rows.yaml", ROOT / "python/spillway_contracts/rows.py"
KINDS = {"time", "id", "str", "u64", "opt", "i64", "f64", "bool"}


def python(rows: dict) -> str:
    """Renders rows.py. Exits for an unknown kind, or a name that is no column."""
    lines = ['"""Generated from contracts/rows.yaml by `make generate`. Do not edit."""', ""]
    every = set()
    for name, row in rows.items():
        if wrong := set(row["columns"].values()) - KINDS:
            raise SystemExit(f"{SOURCE.name}: {name}: {min(wrong)!r} must be one of {sorted(KINDS)}")
        if wrong := set(row["identity"]) - set(row["columns"]):
            raise SystemExit(f"{SOURCE.name}: {name}.identity: {min(wrong)!r} must be one of its columns")
        added = row.get("added", [])
        if wrong := {column for column in added if row["columns"].get(column) != "u64"}:
            raise SystemExit(f"{SOURCE.name}: {name}.added: {min(wrong)!r} must be a column of kind u64")
        every |= set(added)
        lines += [f"# {row['about']}", f"{name.upper()} = {{"]
        lines += [f'    "{column}": "{kind}",' for column, kind in row["columns"].items()]
        lines += ["}", ""]
    names = ", ".join(f'"{column}"' for column in sorted(every))
    lines += ["# columns that are 0 in rows of the previous version, which does not write them"]
    lines += [f"ADDED = frozenset({{{names}}})" if names else "ADDED: frozenset[str] = frozenset()", ""]
    return "\n".join(lines)


def main(check: bool) -> int:
    text = python(yaml.safe_load(SOURCE.read_text()))
    if not check:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        print(f"{TARGET.relative_to(ROOT)} is stale: run 'make generate'")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
