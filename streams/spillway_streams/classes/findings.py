"""Findings: one row of class_findings for each class, written when it changes."""

from dataclasses import dataclass, fields, replace

from spillway_streams.batches.novelty import Novelty
from spillway_streams.classes.merge import Nearest
from spillway_streams.classes.modes import Modes
from spillway_streams.classes.split import Split

KEPT, MERGED, LEARNED, BOUNDED = "kept", "merged", "learned", "bounded"
PINNED, FLAGGED, UNSURE = "pinned", "flagged", "unsure"
_REPEAT_MS = 3_600_000


@dataclass(frozen=True)
class Finding:
    """A row, with columns as in contracts/clickhouse. `found_at`: Unix milliseconds."""

    found_at: int
    service: str
    class_: str
    verdict: str
    reason: str
    requests: float
    samples: int
    failed_share: float
    exclusive_p50_ms: float = 0.0
    exclusive_p99_ms: float = 0.0
    nearest_class: str = ""
    statistic: float = 0.0
    p_value: float = 1.0
    effect: float = 0.0
    child_statistic: float = 0.0
    child_p_value: float = 1.0
    child_effect: float = 0.0
    modes: int = 1
    separation: float = 0.0
    bic_gain: float = 0.0
    mode_low_ms: float = 0.0
    mode_high_ms: float = 0.0
    mode_high_share: float = 0.0
    split_attribute: str = ""
    split_value: str = ""
    split_explained: float = 0.0


COLUMNS = tuple(field.name.rstrip("_") for field in fields(Finding))
SERVICE = COLUMNS.index("service")


def novelty() -> Novelty:
    """Returns the filter that passes classes that are new or changed, and each class every hour."""
    seen = ("verdict", "nearest_class", "split_attribute")
    return Novelty((COLUMNS.index("class"),), tuple(map(COLUMNS.index, seen)), ms=_REPEAT_MS)


def with_nearest(finding: Finding, nearest: Nearest, class_id: str) -> Finding:
    comparison = nearest.comparison
    return replace(
        finding,
        nearest_class=class_id,
        statistic=comparison.statistic,
        p_value=comparison.p_value,
        effect=comparison.distance,
        child_statistic=comparison.child_statistic,
        child_p_value=comparison.child_p_value,
        child_effect=comparison.child_difference,
    )


def with_modes(finding: Finding, modes: Modes, split: Split) -> Finding:
    return replace(
        finding,
        modes=2 if modes.clear else 1,
        separation=modes.separation,
        bic_gain=modes.bic_gain,
        mode_low_ms=modes.low_ms,
        mode_high_ms=modes.high_ms,
        mode_high_share=modes.high_share,
        split_attribute=split.attribute,
        split_value=split.value,
        split_explained=split.explained,
    )
