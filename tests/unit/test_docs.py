"""The claims of docs/ and UPGRADING.md hold: figures are fresh, links work, named tests exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/operations.md", "docs/security.md", "UPGRADING.md")
START = ("docs/start/istio-shadow.md", "docs/start/sidecars-shadow.md", "docs/start/managed-servers.md")
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


@pytest.mark.parametrize("page", [*PAGES, *START])
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


def test_every_make_target_that_a_page_names_is_there():
    """Pages include the READMEs of folders. The first page names every benchmark."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.M))
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "UPGRADING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("[a-z]*/**/README.md"),
    ]
    named = {
        (str(page.relative_to(ROOT)), target)
        for page in pages
        for target in re.findall(r"(?:`|^ *)make ([a-z][a-z0-9-]*)", page.read_text(), re.M)
    }
    assert len(named) >= 20
    assert {(page, target) for page, target in named if target not in targets} == set()
    benchmarks = {target for target in targets if target.startswith("bench-")}
    assert benchmarks <= set(re.findall(r"`(?:make )?(bench-[a-z]+)", (ROOT / "README.md").read_text()))
