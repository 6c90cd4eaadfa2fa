"""Files that charts carry although they are another folder's: Helm reads nothing outside a chart.

Usage: python tools/charts/copies.py [--check]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLOBAL = "infra/helm/spillway-global/files"
# (pattern of the originals, folder of the copies)
COPIES = (
    ("infra/kafka/topics.yaml", GLOBAL),
    ("infra/alerts/global.yaml", f"{GLOBAL}/alerts"),
    ("infra/grafana/*.json", f"{GLOBAL}/grafana"),
)


def pairs() -> Iterator[tuple[Path, Path]]:
    """(original, copy)."""
    for pattern, folder in COPIES:
        for original in sorted(ROOT.glob(pattern)):
            yield original, ROOT / folder / original.name


def stale() -> list[str]:
    """Copies that are not there, differ, or have no original any more."""
    wanted = {copy: original for original, copy in pairs()}
    found = [
        f"{copy.relative_to(ROOT)}: is not {original.relative_to(ROOT)}"
        for copy, original in wanted.items()
        if not copy.exists() or copy.read_bytes() != original.read_bytes()
    ]
    there = {path for _, folder in COPIES for path in (ROOT / folder).glob("*") if path.is_file()}
    return found + [f"{path.relative_to(ROOT)}: has no original" for path in sorted(there - set(wanted))]


def write() -> None:
    wanted = {copy: original for original, copy in pairs()}
    for _, folder in COPIES:
        for path in (ROOT / folder).glob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
    for copy, original in wanted.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(original.read_bytes())


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        found = stale()
        print("\n".join([*found, "stale: run 'python tools/charts/copies.py'"]) if found else "fresh")
        sys.exit(1 if found else 0)
    if sys.argv[1:]:
        sys.exit("usage: copies.py [--check]")
    write()
