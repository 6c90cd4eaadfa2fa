"""The golden files of skew tests are those of one older version, not of today's.

tools/version.py compares every place that names the version with VERSION.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_golden_files_are_of_a_version_before_it():
    [previous] = (ROOT / "contracts" / "golden" / "previous").iterdir()
    version = (ROOT / "VERSION").read_text().strip()
    assert tuple(map(int, previous.name.split("."))) < tuple(map(int, version.split(".")))
