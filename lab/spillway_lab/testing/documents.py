"""Reads documentation pages whose code blocks tests run unchanged.

Some blocks run on API servers, others on the running stack.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.testing.servers import ROOT

FIRST_DAY = tuple(ROOT / "docs/start" / f"{name}-shadow.md" for name in ("istio", "sidecars"))
_PART = re.compile(
    r"^## (?P<step>[^\n]+)$|^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A code block of a page. `step` is the heading above it."""

    step: str
    language: str
    text: str

    @property
    def needs_spans(self) -> bool:
        """Whether the block queries data that pods have sent."""
        return bool(re.search(r"spillway_lab sql| exec ", self.text))


def blocks(page: Path) -> list[Block]:
    found, step = [], ""
    for part in _PART.finditer(page.read_text()):
        step = part["step"] or step
        if part["language"]:
            found.append(Block(step, part["language"], part["text"]))
    return found


def questions_of(page: Path) -> list[str]:
    """Returns the commands that need spans, without the `kubectl exec … --` in front of them."""
    lines = [line for block in blocks(page) if block.needs_spans for line in block.text.splitlines()]
    commands = [line.partition("#")[0].rpartition(" -- ")[2].strip() for line in lines]
    return [command for command in commands if command]
