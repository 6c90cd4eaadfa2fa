"""The claims of the pages hold: figures are fresh, links work, named tests and files exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/operations.md", "docs/security.md", "UPGRADING.md")
START = ("docs/start/istio-shadow.md", "docs/start/sidecars-shadow.md", "docs/start/managed-servers.md")
# First pages: what is where.
MAPS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "contracts/README.md",
    "lab/README.md",
)
_TEST = re.compile(r"`([\w./-]+(?:test_\w+\.py|_test\.go|\.tftest\.hcl))(?:::(\w+))?`")


def test_the_sizing_table_is_made_of_the_measured_figures():
    """docs/operations.md contains the table that follows from docs/measured.json."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "sizing.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    """Each test that a page names as evidence exists: the file, and in it the named function."""
    named = _TEST.findall((ROOT / page).read_text())
    assert len(named) >= 5
    missing = []
    for file, function in named:
        path = ROOT / file
        if not path.is_file() or (
            function and not re.search(rf"\b(def|func) {function}\(", path.read_text())
        ):
            missing.append(f"{file}::{function}")
    assert missing == []


@pytest.mark.parametrize("page", [*PAGES, *START, *MAPS])
def test_every_link_of_a_page_leads_somewhere(page):
    """Every link leads to a file of the repository, and to a heading if the link names one."""
    broken = []
    for target, anchor in re.findall(
        r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", (ROOT / page).read_text()
    ):
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M) if path.is_file() else []
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        if not path.exists() or (anchor and anchor not in anchors):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def _code(text: str) -> str:
    """Returns the blocks and the spans of code of a page, each on lines of its own."""
    return "\n".join(re.findall(r"^```.*?^```|^ {4,}\S[^\n]*|`[^`\n]+`", text, re.M | re.S))


def test_every_make_target_that_a_page_names_is_there():
    """Pages include README.md and REFERENCE.md of folders. The first page names every benchmark."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.M))
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "UPGRADING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("[a-z]*/**/README.md"),
        *ROOT.glob("[a-z]*/**/REFERENCE.md"),
    ]
    named = {
        (str(page.relative_to(ROOT)), target)
        for page in pages
        for target in re.findall(r"(?:`|^ *)make ([a-z][a-z0-9-]*)", _code(page.read_text()), re.M)
    }
    assert len(named) >= 20
    assert {(page, target) for page, target in named if target not in targets} == set()
    benchmarks = {target for target in targets if target.startswith("bench-")}
    assert benchmarks <= set(re.findall(r"`(?:make )?(bench-[a-z]+)", (ROOT / "README.md").read_text()))


def linked(page: Path) -> set[Path]:
    """Returns the files and folders of the repository that a page links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    return {(page.parent / target).resolve() for target in targets}


def test_the_index_links_to_every_page():
    """docs/README.md links to all pages below docs/, and to the pages that READMEs point to.

    Among them are all ADRs, each with its number and title.
    """
    index = ROOT / "docs/README.md"
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path != index}
    pages |= {path for path in ROOT.glob("[a-z]*/**/REFERENCE.md") if ".spillway" not in path.parts}
    assert len(pages) >= 40
    assert {str(path.relative_to(ROOT)) for path in pages - linked(index)} == set()
    text = index.read_text()
    for record in sorted((ROOT / "docs/adr").glob("*.md")):
        number, _, title = record.read_text().splitlines()[0].removeprefix("# ").partition(". ")
        assert f"[ADR {number}](adr/{record.name}): {title}" in text


def test_every_path_of_the_architecture_page_exists():
    """Names in backticks with a slash are paths of the repository; other file names occur in it."""
    text = re.sub(r"```.*?```", "", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.S)
    names = re.findall(r"`([\w./-]+)`", text)
    paths = {name for name in names if "/" in name}
    assert len(paths) >= 30
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    files = {Path(line).name for line in listed.stdout.splitlines() if (ROOT / line).exists()}
    named = {name for name in names if re.fullmatch(r"\w+\.(py|rs|go|yaml|yml)", name)}
    assert named - files == set()


def test_the_architecture_page_has_the_rooms_in_their_order():
    """The table of rooms is that of tools/rooms.toml."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    declared = tomllib.loads((ROOT / "tools/rooms.toml").read_text())
    shown = dict(re.findall(r"^\| `(spillway_\w+)` \| (.+) \|$", text, re.M))
    assert shown == {
        package: " → ".join(entry["rooms"]) for package, entry in declared.items() if entry["rooms"]
    }
