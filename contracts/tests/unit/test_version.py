"""The version is said in VERSION; whatever must repeat it says the same."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VERSION = (ROOT / "VERSION").read_text().strip()
PLACES = {
    "**/pyproject.toml": r'^version = "(.+)"$',
    "**/Cargo.toml": r'^version = "(.+)"$',
    "infra/helm/spillway-*/Chart.yaml": r"^appVersion: \"?([^\"\n]+)\"?$",
    "collectors/builder-config.yaml": r"^  version: (.+)$",
    "collectors/distribution/main.go": r'Version: +"(.+)"',
}


def test_every_box_and_chart_has_the_version():
    """Packages, crates, charts and the collector's build say what VERSION says: `git grep` for the old one finds all."""
    found = {}
    for pattern, said in PLACES.items():
        paths = [path for path in ROOT.glob(pattern) if ".spillway" not in path.parts]
        assert paths, pattern
        for path in paths:
            found |= {f"{path.relative_to(ROOT)}": v for v in re.findall(said, path.read_text(), re.M)}
    assert len(found) >= 10
    assert {place: version for place, version in found.items() if version != VERSION} == {}


def test_the_golden_files_are_of_a_version_before_it():
    """What today is held against is one older version, not itself."""
    [previous] = (ROOT / "contracts" / "golden" / "previous").iterdir()
    assert tuple(map(int, previous.name.split("."))) < tuple(map(int, VERSION.split(".")))
