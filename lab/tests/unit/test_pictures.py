"""Pictures say what they are drawn from, and are small enough to be committed."""

import re
from xml.etree import ElementTree

import numpy as np
from spillway_lab.pages import pictures
from spillway_lab.report.statistics import UNKNOWN, Estimate

LOOK = pictures.styles(["spillway", "waterfall"])


def words(svg: str) -> list[str]:
    return [text.strip() for text in ElementTree.fromstring(svg).itertext() if text.strip()]


def test_a_map_has_the_value_of_each_cell() -> None:
    """Values keep their digits, and an unknown cell has none."""
    shown = words(
        pictures.grid([5, 25], [60, 100], np.array([[1.25, 2.37], [np.nan, 0.81]]), ("x", "y", "t"))
    )
    assert {"1.25", "2.37", "0.81", "x", "y", "t", "5", "25", "60", "100"} <= set(shown)
    assert "nan" not in shown


def test_lines_have_names_axes_and_events() -> None:
    """The legend names each policy that has values; an event's line has its words."""
    lines = {"spillway": (np.array([0.0, 1.0]), np.array([0.15, 0.35])), "waterfall": (np.empty(0),) * 2}
    shown = words(pictures.times(lines, "share", {0.5: "a fault"}, LOOK))
    assert {"spillway", "share", "a fault", "seconds of the measured part"} <= set(shown)
    assert "waterfall" not in shown
    assert any(re.fullmatch(r"0\.\d\d", text) for text in shown), "labels of the axis keep their digits"


def test_policies_are_told_apart_without_colour() -> None:
    """On black and white paper dashes tell lines apart, and the first line is thicker."""
    look = pictures.styles([f"p{number}" for number in range(7)])
    assert len({str(each["linestyle"]) for each in look.values()}) == 7
    assert look["p0"]["linewidth"] > look["p1"]["linewidth"]


def test_unknown_ratios_are_left_out_of_a_sweep() -> None:
    """A point without a ratio has no mark, and one without an interval has no band."""
    found = [Estimate(1.2, 1.1, 1.3), UNKNOWN, Estimate(1.4)]
    shown = words(pictures.ratios([1, 2, 3], {"waterfall": found}, "round trip, ms", LOOK))
    assert "waterfall" in shown
    assert "round trip, ms" in shown


def test_a_picture_of_many_points_stays_small() -> None:
    """A report of a hundred pictures stays below the megabyte that may be committed."""
    at = np.linspace(1, 1000, 160)
    svg = pictures.cdfs({name: (at, np.linspace(0, 1, 160)) for name in LOOK}, LOOK)
    assert len(svg) < 10_000
    assert "<g>" not in svg and svg.count("<g ") == svg.count("</g>")
