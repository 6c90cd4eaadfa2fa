"""Finds passwords, keys and tokens in the repository: python tools/no_secrets.py [FOLDER]

It searches every file that git knows for text written like a secret with a value. Text that only
names a secret, reads one from elsewhere or makes one at random is no finding. Each of EXCEPTIONS
has a reason; an exception that is no longer needed is an error.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_WORD = r"pass(?:word|wd|phrase)?|secret(?:_?key)?|api_?key|access_?key|auth_?token|access_?token|token"
# A value that is taken from elsewhere or is a placeholder: variables, templates, paths, calls,
# attributes, types. In YAML also the name of a Secret, spillway-….
_ELSEWHERE = r"\$|\{|<|@|%|/|\.\.\.|…|file:|env:"
_TEST_FOLDERS = ("tests", "featuretests", "testing", "benchmarks", "testdata", "golden")


@dataclass(frozen=True)
class Rule:
    """A pattern of secrets.

    `skip`: parts of paths where a match is no finding.
    """

    name: str
    pattern: re.Pattern[str]
    skip: tuple[str, ...] = ()


RULES = (
    # No path is skipped, because a key made up for a test cannot be told from a real one.
    Rule("private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\\?\s*n?[A-Za-z0-9+/=]{16}")),
    Rule("placeholder password", re.compile(
        r"\b(?:ch[a]nge[-_]?me|hunter[2]|passw[0]rd|letm[e]in|p[@]ssw[0]rd)\b", re.IGNORECASE), _TEST_FOLDERS),
    Rule("token of a known form", re.compile(
        r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{20}|AIza[\w-]{35}"
        r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}|SU[A-Z2-7]{56})\b")),
    Rule("URL with a password", re.compile(
        rf"\b[a-z][a-z0-9+]*://[\w.-]*:(?!{_ELSEWHERE}|pass(?:word)?@)[^\s/:@'\"`,]+@[\w\[]"), _TEST_FOLDERS),
    Rule("password as a literal", re.compile(
        rf"(?i)[\"']?(?<![a-z])(?:\w*[_-])?(?:{_WORD})[\"']?\s*(?:=|:|:=)\s*[\"'](?!{_ELSEWHERE})[^\"'\s]{{3,}}[\"']"),
        _TEST_FOLDERS),
    Rule("password in a shell or a YAML file", re.compile(
        rf"(?im)^\s*(?:-\s*)?(?:export\s+)?(?:\w*[_-])?(?:{_WORD})\s*[=:]\s*(?!{_ELSEWHERE}|[\"'|>(&*!]|spillway-[a-z-]+\s*$|null\b|true\b|false\b|#)"
        r"[^\s#(]{4,}\s*$"), _TEST_FOLDERS),
)  # fmt: skip
_LINES_OF = {
    "password in a shell or a YAML file": (
        ".yaml",
        ".yml",
        ".sh",
        ".env",
        ".conf",
        ".toml",
        ".ini",
        ".properties",
    )
}

# (path, part of the line): why it is no secret.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def findings(root: Path, files: list[str], exceptions: dict[tuple[str, str], str]) -> list[str]:
    """Returns a line for each finding: path:line: rule. Never contains the value."""
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    for name in files:
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # tools/artefacts.py judges those
        for line, rule in sorted(_of(name, text)):
            line_text = text.splitlines()[line - 1]
            excused = [key for key in exceptions if key[0] == name and key[1] in line_text]
            used.update(excused)
            if not excused:
                found.append(f"{name}:{line}: {rule}")
    found += [f"{path}: an exception that nothing needs: {text!r}" for path, text in exceptions.keys() - used]
    return found


def _of(name: str, text: str) -> set[tuple[int, str]]:
    parts, kind = Path(name).parts, Path(name).suffix or Path(name).name
    return {
        (text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1, rule.name)
        for rule in RULES
        if not any(
            part in rule.skip or part.startswith("test_") or part.endswith("_test.go") for part in parts
        )
        or not rule.skip
        if kind in _LINES_OF.get(rule.name, (kind,))
        for match in rule.pattern.finditer(text)
    }


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    found = findings(root, [name for name in listed.stdout.decode().split("\0") if name], EXCEPTIONS)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
