"""Pictures as SVG text. The same figures give the same bytes. Nothing in them refers outside."""

import io
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spillway_lab.findings.gathered import Points
from spillway_lab.report.statistics import Estimate

# Told apart without colour too: Okabe and Ito's colours, and dashes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_WIDTH_IN, _HEIGHT_IN = 8.0, 4.0
_LEFT = 0.005  # share of requests that a CDF leaves out at the left, where nothing is to be seen
_FAR = 20.0  # values that are farther apart have a logarithmic axis
_SIMPLER_PX = 1.0  # points of a line that are closer to it are left out; a line is 2 px
_DIGITS = re.compile(r"(\d\.\d)\d+")
Styles = Mapping[str, Mapping[str, Any]]


def styles(policies: Sequence[str]) -> Styles:
    """Returns colour and dashes of each policy; the first has the thickest line."""
    return {
        policy: {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": _DASHES[number % len(_DASHES)],
            "linewidth": 2.4 if number == 0 else 1.5,
        }
        for number, policy in enumerate(policies)
    }


def cdfs(lines: Mapping[str, Points], look: Styles) -> str:
    """Draws the share of all requests that were answered within a latency, by policy."""

    def draw(axes: Any) -> None:
        left = np.inf
        for policy, (latency, share) in lines.items():
            if len(latency):
                axes.plot(latency, share, label=policy, **look[policy])
                left = min(left, latency[np.searchsorted(share, _LEFT).clip(max=len(latency) - 1)])
        axes.set(xscale="log", xlabel="latency at the client, ms", ylabel="share of all requests")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 1.005)
        if np.isfinite(left):
            axes.set_xlim(left=max(left, 1e-3))

    return _drawn(draw)


def times(lines: Mapping[str, Points], label: str, events: Mapping[float, str], look: Styles) -> str:
    """Draws values over the seconds of the measured part, by policy, with lines at events."""

    def draw(axes: Any) -> None:
        for policy, (at, value) in lines.items():
            if len(at):
                axes.plot(at, value, label=policy, **look[policy])
        for begin, what in events.items():
            axes.axvline(begin, color="#444444", linewidth=1, linestyle=":")
            axes.text(
                begin,
                0.98,
                f" {what}",
                transform=axes.get_xaxis_transform(),
                fontsize=8,
                rotation=90,
                va="top",
            )
        axes.set(xlabel="seconds of the measured part", ylabel=label)
        values = np.concatenate([value for _, value in lines.values()] or [np.empty(0)])
        if len(values) and values.min() > 0 and values.max() > _FAR * values.min():
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.set_ylim(bottom=0)

    return _drawn(draw)


def ratios(at: Sequence[float], lines: Mapping[str, Sequence[Estimate]], label: str, look: Styles) -> str:
    """Draws ratios over the points of a sweep, with their intervals; 1 is drawn as a line."""

    def draw(axes: Any) -> None:
        for policy, found in lines.items():
            known = [(where, each) for where, each in zip(at, found, strict=True) if each.value is not None]
            middle = [each.value for _, each in known]
            axes.plot([where for where, _ in known], middle, marker="o", label=policy, **look[policy])
            bounded = [(where, each) for where, each in known if each.bounded]
            axes.fill_between(
                [where for where, _ in bounded],
                [each.low for _, each in bounded],
                [each.high for _, each in bounded],
                color=look[policy]["color"],
                alpha=0.15,
            )
        axes.axhline(1, color="#444444", linewidth=1)
        axes.set(xlabel=label, ylabel="mean latency over that of ours")

    return _drawn(draw)


def grid(x: Sequence[float], y: Sequence[float], values: np.ndarray, labels: tuple[str, str, str]) -> str:
    """Draws a map of values of shape (y, x), with each value in its cell.

    NaN is left white; one value at least is known.
    """

    def draw(axes: Any) -> None:
        edge = max(1e-9, *np.abs(values[np.isfinite(values)] - 1))
        # Cells as shapes: an image would be a bitmap inside the SVG.
        edges = [np.arange(count + 1) - 0.5 for count in reversed(values.shape)]
        axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap="RdBu", vmin=1 - edge, vmax=1 + edge)
        axes.set_xticks(range(len(x)), [f"{each:g}" for each in x])
        axes.set_yticks(range(len(y)), [f"{each:g}" for each in y])
        for row, column in np.argwhere(np.isfinite(values)):
            value = values[row, column]
            colour = "white" if abs(value - 1) > 0.55 * edge else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.set(xlabel=labels[0], ylabel=labels[1], title=labels[2])
        axes.grid(False)

    return _drawn(draw)


def _drawn(draw: Any) -> str:
    # Imported here because only pages with pictures need it and the import takes most of a second.
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Text stays text, in a font of the reader; ids follow from the content.
    with matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "spillway",
            "font.family": "sans-serif",
            "path.simplify_threshold": _SIMPLER_PX,
        }
    ):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(True, alpha=0.3)
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize=9)
        text = io.StringIO()
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    return _inside(text.getvalue())


def _inside(svg: str) -> str:
    """Removes the XML head and the metadata, which refer to other documents, and what is not seen.

    Coordinates are in points; a tenth of one is finer than a line.
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', lambda found: _DIGITS.sub(r"\1", found[0]), svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # groups, which nothing refers to
    svg = re.sub(r"font-family: '[^;]*, sans-serif;? *", "", svg)
    svg = re.sub(r' transform="rotate\(-?0(?:\.0)? [^"]*"', "", svg)
    svg = svg.replace("<svg ", '<svg font-family="sans-serif" ', 1)
    svg = re.sub(r"\s*\n\s*", "\n", _without_bare_groups(svg))
    svg = re.sub(r'\bd="([MLz\d\s.-]*)"', lambda found: f'd="{_relative(found[1])}"', svg)
    svg = re.sub(r"\b([mp][0-9a-f]{5})[0-9a-f]{5}\b", r"\1", svg)  # ids within a picture
    return _classes(svg)


def _relative(path: str) -> str:
    """Returns a path of straight lines with each point relative to the one before: half the digits.

    In tenths of a point, so that no error adds up.
    """
    found: list[str] = []
    x = y = 0
    for command, pair in re.findall(r"([MLz])([^MLz]*)", path):
        numbers = [round(10 * float(number)) for number in pair.split()]
        for next_x, next_y in zip(numbers[::2], numbers[1::2], strict=True):
            is_start = command == "M"
            values = (next_x, next_y) if is_start else (next_x - x, next_y - y)
            joined = "M" if is_start else " " if found[-1][0] in "l " else "l"
            found.append(joined + " ".join(f"{value / 10:g}" for value in values))
            (x, y), command = (next_x, next_y), "L"
        if command == "z":
            found.append("z")
    return "".join(found)


def _classes(svg: str) -> str:
    """Replaces styles with classes. A page has many pictures, so equal styles have equal names.

    A marker has its style where it is defined, and again wherever it is used.
    """
    names: dict[str, str] = {}
    styled = set(re.findall(r'<path id="([^"]*)"[^>]*style=', svg))
    svg = re.sub(
        r'(<use xlink:href="#([^"]*)"[^>]*?) style="[^"]*"',
        lambda found: found[1] if found[2] in styled else found[0],
        svg,
    )

    def one(found: re.Match[str]) -> str:
        names[found[1]] = f"s{zlib.crc32(found[1].encode()):08x}"[:7]
        return f'class="{names[found[1]]}"'

    svg = re.sub(r'style="([^"]*)"', one, svg)
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    # As of SVG 2, which browsers know, a use needs no prefix.
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    return svg.replace("</style>", f"{rules}</style>", 1)


def _without_bare_groups(svg: str) -> str:
    """Replaces each group that has no attributes with its content."""
    kept: list[bool] = []  # for each group that is open, whether it has attributes

    def one(tag: re.Match[str]) -> str:
        if tag[0] == "</g>":
            return tag[0] if kept.pop() else ""
        kept.append(tag[0] != "<g>")
        return tag[0] if kept[-1] else ""

    return re.sub(r"<g\b[^>]*(?<!/)>|</g>", one, svg)
