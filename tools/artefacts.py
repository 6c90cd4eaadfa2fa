"""Finds committed build artefacts: binaries, archives, bytecode, or anything over 1 MB.

Usage: python tools/artefacts.py [ROOT]
"""

import subprocess
import sys
from pathlib import Path

LIMIT = 1 << 20
SUFFIXES = {
    ".wasm",
    ".so",
    ".a",
    ".o",
    ".jar",
    ".class",
    ".pyc",
    ".whl",
    ".exe",
    ".zip",
    ".gz",
    ".tar",
    ".bin",
}
MAGIC = {b"\x7fELF": "an ELF binary", b"\0asm": "a WebAssembly module", b"PK\x03\x04": "an archive"}


def problem(path: Path) -> str | None:
    """Returns why a file is an artefact, or None."""
    if path.suffix in SUFFIXES:
        return f"files ending in {path.suffix} are built, not committed"
    if (size := path.stat().st_size) > LIMIT:
        return f"{size} bytes; at most {LIMIT} are committed"
    with path.open("rb") as file:
        head = file.read(4)
    return next((f"{what}" for magic, what in MAGIC.items() if head == magic), None)


def find(root: Path) -> list[str]:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True)
    files = [root / name for name in tracked.stdout.split("\0") if name]
    return [f"{f.relative_to(root)}: {why}" for f in files if f.is_file() and (why := problem(f))]


if __name__ == "__main__":
    found = find(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    print("\n".join(found) if found else "none")
    sys.exit(1 if found else 0)
