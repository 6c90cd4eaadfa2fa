#!/usr/bin/env python3
"""Writes a version to the file VERSION and to every other place, or finds places that differ.

Usage: tools/version.py --check [ROOT]      names every place with another version, and exits with 1
       tools/version.py <version> [ROOT]    writes VERSION and every place, e.g. 0.3.0
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

VERSION = r"\d+\.\d+\.\d+"
# Path pattern in the repository -> regular expression whose only group is the version. `*` also
# matches `/`.
PLACES = {
    "*pyproject.toml": r'^version = "(.+)"$',
    "*Cargo.toml": r'^version = "(.+)"$',
    "*Cargo.lock": r'^name = "spillway-[\w-]+"\nversion = "(.+)"$',
    "infra/helm/spillway-*/Chart.yaml": r'^(?:version|appVersion): "?([^"\n]+)"?$',
    "infra/helm/*Chart.yaml": r"\{name: spillway-[\w-]+, version: ([^,]+),",
    "collectors/builder-config.yaml": r"^  version: (.+)$",
    "collectors/distribution/main.go": r'Version: +"(.+)"',
}


def places(root: Path) -> Iterator[tuple[Path, str]]:
    """Yields tracked files, each with a pattern that finds a version in it."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True)
    for name in filter(None, tracked.stdout.split("\0")):
        for place, pattern in PLACES.items():
            path = root / name
            if fnmatch(name, place) and path.is_file() and not path.is_symlink():
                yield path, pattern


def differing(root: Path) -> list[str]:
    """Returns a line for each version that differs from the file VERSION."""
    wanted = (root / "VERSION").read_text().strip()
    if not re.fullmatch(VERSION, wanted):
        return [f"VERSION: {wanted!r} is no version"]
    found = []
    for path, pattern in places(root):
        text = path.read_text()
        for match in re.finditer(pattern, text, re.M):
            if match[1] != wanted:
                line = text.count("\n", 0, match.start(1)) + 1
                found.append(f"{path.relative_to(root)}:{line}: {match[1]}, VERSION has {wanted}")
    return found


def write(root: Path, version: str) -> list[str]:
    """Writes the version to VERSION and to every place. Returns the paths of the files."""
    (root / "VERSION").write_text(f"{version}\n")
    written = ["VERSION"]
    for path, pattern in places(root):
        text = path.read_text()
        pieces, end = [], 0
        for match in re.finditer(pattern, text, re.M):
            pieces += [text[end : match.start(1)], version]
            end = match.end(1)
        if pieces:
            path.write_text("".join([*pieces, text[end:]]))
            written.append(str(path.relative_to(root)))
    return written


def main(arguments: list[str]) -> int:
    if not arguments or len(arguments) > 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 64
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).parents[1]).resolve()
    if arguments[0] == "--check":
        found = differing(root)
        print("\n".join(found) if found else "one version")
        return 1 if found else 0
    if not re.fullmatch(VERSION, arguments[0]):
        print(f"{arguments[0]}: no version; a version has three numbers, as 0.3.0", file=sys.stderr)
        return 64
    print("\n".join(sorted(set(write(root, arguments[0])))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
