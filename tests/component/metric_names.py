"""The metrics that components serve, and the metrics that a PromQL expression reads.

The tables of REFERENCE.md are the reference, or those of README.md where a component has no
REFERENCE.md. Each component's own test compares its table with what it serves. infra/alerts holds
the tables of recorded metrics (README.md) and of servers (servers.md).
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TABLES = (
    "streams",
    "optimizer",
    "rule-publisher/publisher",
    "rule-publisher/relay",
    "collectors",
    "infra/alerts",
)
_ROW = re.compile(r"^\| `([a-z_]+)` \| (.*?) ?\|", re.MULTILINE)
_SERVERS = re.compile(r"^\| `(\w+)` \| (.*?) ?\|", re.MULTILINE)
_DOCUMENTED = re.compile(r"^### (otelcol_\w+)$", re.MULTILINE)
# Labels and metrics that Prometheus adds for every target and for itself.
TARGET = {"job", "instance", "cluster", "namespace", "pod"}
_ALWAYS = ("up", "process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total")
_KEYWORDS = {
    "and",
    "or",
    "unless",
    "by",
    "on",
    "without",
    "ignoring",
    "bool",
    "offset",
    "group_left",
    "group_right",
}
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


@cache
def served() -> dict[str, set[str]]:
    """Returns the labels of every metric that a component serves, without those of its target."""
    found: dict[str, set[str]] = {name: set() for name in _ALWAYS}
    for folder in _TABLES:
        for name, labels in _ROW.findall(_page(ROOT / folder).read_text()):
            if name.startswith(("spillway_", "otelcol_")):
                found[name] = set(re.findall(r"`(\w+)`", labels))
    for name, labels in _SERVERS.findall((ROOT / "infra/alerts/servers.md").read_text()):
        found[name] = set(re.findall(r"`(\w+)`", labels))
    page = (ROOT / "collectors/kafkapartitionexporter/documentation.md").read_text()
    for name in _DOCUMENTED.findall(page):
        found.setdefault(name, {"topic", "reason"})
    for name in [
        name for name in found if name.startswith("spillway_relay_") and name.endswith("ack_seconds")
    ]:
        labels = found.pop(name)  # a histogram is served only in its parts
        found |= {name + part: labels for part in ("_count", "_sum")}
        found[name + "_bucket"] = labels | {"le"}
    return found


def _page(folder: Path) -> Path:
    """Returns the page with a component's table of metrics."""
    reference = folder / "REFERENCE.md"
    return reference if reference.exists() else folder / "README.md"


def read(expression: str) -> dict[str, set[str]]:
    """Returns every metric of the expression, with the labels that its selectors name."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    text = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", "", _GROUPING.sub("", text))
    found: dict[str, set[str]] = {}
    for name, after in re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\}|\()?", text):
        if after == "(" or name in _KEYWORDS or _in_braces(text, name):
            continue
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]", after))
    return found


def _in_braces(text: str, name: str) -> bool:
    """Whether the word occurs only among the labels of selectors."""
    return not re.search(rf"(?<![\w.]){re.escape(name)}\b", re.sub(r"\{[^}]*\}", "{}", text))


def grouped(expression: str) -> set[str]:
    """Labels that the expression groups by."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")}


def shown(expression: str) -> set[str]:
    """Labels that the expression's result may have."""
    if " by (" in expression:
        return grouped(expression)
    return TARGET.union(*(served()[name] for name in read(expression)))


def wrong(expression: str) -> list[str]:
    """Returns what the expression reads but no component serves. It is empty if all exists."""
    known, problems = served(), []
    for name, labels in read(expression).items():
        if name not in known:
            problems.append(f"{name}: no box serves it")
        elif strange := labels - known[name] - TARGET:
            problems.append(f"{name}: has no label {', '.join(sorted(strange))}")
    labels = set().union(*(known.get(name, set()) for name in read(expression)))
    problems += [
        f"{label}: no metric of the expression has it"
        for label in grouped(expression) - labels - TARGET - {""}
    ]
    return problems
