"""Writes the report: one HTML page, and the same as Markdown with a folder of pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.findings.chapter import Chapter
from spillway_lab.pages import html_page, markdown_page
from spillway_lab.pages.blocks import Block, Picture
from spillway_lab.pages.chapters import blocks

HTML, MARKDOWN, PICTURES = "report.html", "README.md", "pictures"
METHOD = (
    "Each experiment asks a question of the papers that Spillway follows, and answers it with runs of the same "
    "load under several policies. Latencies are those that clients measured, and egress is counted at the "
    "proxies' connections; nothing is taken from Spillway's own telemetry. Live runs start real Envoys and "
    "all of Spillway's processes on one machine. Simulated runs are labelled as such.",
    "The rounds of the policies are interleaved and repeated. Figures are followed by their 95 % intervals, from "
    "a bootstrap of blocks of time within rounds and the differences between rounds. A figure without an "
    "interval has one round, or is not a measurement of requests. A failed request counts with the client's "
    "timeout, so latencies under a policy that fails requests are lower bounds (≥). Where every request failed, the "
    "latency is unknown. Intervals of p99 are too narrow where queues are long and rounds are short.",
    "A policy is better or worse than another if the interval of their ratio excludes 1. Otherwise they are not "
    "told apart. Where two policies do not differ, one comparison in twenty tells them apart by chance. "
    "A live round is disturbed if more than 75 % of the cores were in use, or if processes waited for a core in "
    "more than 20 % of the time. An experiment with a disturbed round has no conclusion.",
    "The papers' figures come from other machines, applications and loads. Where a paper says “up to”, ours is "
    "the best of the experiment's scenarios too. All experiments run with the same settings, which are the "
    "defaults; nothing is tuned for one of them.",
)


@dataclass(frozen=True)
class Written:
    html: Path
    markdown: Path
    pictures: int


def write(chapters: Sequence[Chapter], folder: Path) -> Written:
    """Writes the report into a folder, and removes pictures of earlier reports from it."""
    content = list(blocks(chapters, METHOD))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HTML).write_text(html_page.page("Spillway: results", content))
    (folder / MARKDOWN).write_text(markdown_page.page(content, PICTURES))
    return Written(folder / HTML, folder / MARKDOWN, _pictures(content, folder / PICTURES))


def _pictures(content: Sequence[Block], folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    drawn = {f"{block.name}.svg": block.svg for block in content if isinstance(block, Picture)}
    for path in folder.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()
    for name, svg in drawn.items():
        (folder / name).write_text(svg)
    return len(drawn)
