"""SQL and rows of class_rules and class_findings. Values are plain: any client can run the SQL."""

from collections.abc import Iterable, Sequence
from typing import Any

from spillway_streams.classes import findings, rules
from spillway_streams.classes.findings import Finding
from spillway_streams.classes.rules import Rule

RULES, FINDINGS = "class_rules", "class_findings"
_TIMES = ("written_at", "effective_from")
_COLUMNS = ", ".join(
    f"toUnixTimestamp64Milli({name}) AS {name}_ms" if name in _TIMES else name for name in rules.COLUMNS
)

# Rules in force or scheduled: the newest effective one of each key, and all future ones.
RULES_SQL = f"""
SELECT {_COLUMNS}
FROM class_rules FINAL
WHERE effective_from > now64(3)
   OR (service, method, template, kind IN ('pinned', 'unpinned'), effective_from) IN (
       SELECT service, method, template, kind IN ('pinned', 'unpinned'), max(effective_from)
       FROM class_rules WHERE effective_from <= now64(3) GROUP BY 1, 2, 3, 4)"""

FINDINGS_SQL = f"""
SELECT {", ".join("toUnixTimestamp64Milli(found_at) AS at_ms" if n == "found_at" else n for n in findings.COLUMNS)}
FROM class_findings
WHERE found_at > now64(3) - INTERVAL 2 HOUR
ORDER BY found_at DESC LIMIT 1 BY class"""


def read_rules(rows: Iterable[Sequence[Any]]) -> list[Rule]:
    return [Rule(*row) for row in rows]


def read_findings(rows: Iterable[Sequence[Any]]) -> list[Finding]:
    return sorted((Finding(*row) for row in rows), key=lambda finding: finding.class_)
