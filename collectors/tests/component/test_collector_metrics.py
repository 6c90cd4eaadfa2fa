"""The collector's own metrics, as alerts and dashboards read them."""

import re
import secrets
from pathlib import Path

import pytest
from collector_process import spans_request
from spillway_lab.testing.waiting import eventually
from topics import messages_of

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]

REFERENCE = Path(__file__).parents[2] / "REFERENCE.md"


ROW = re.compile(r"^\| `(otelcol_\w+)` \| (.*?) ?\|", re.MULTILINE)
SAMPLE = re.compile(r"^(otelcol_\w+)(?:\{(.*)\})? ", re.MULTILINE)
# Labels of every metric: they name the collector and the component that counts.
COMMON = re.compile(r"otel_scope_\w+|service_\w+")


def served(text: str) -> dict[str, set[str]]:
    """Returns label names by metric, without the labels that every metric has."""
    found: dict[str, set[str]] = {}
    for name, labels in SAMPLE.findall(text):
        names = re.findall(r'(\w+)="', labels or "")
        found.setdefault(name, set()).update(n for n in names if not COMMON.fullmatch(n))
    return found


def test_every_metric_of_the_reference_is_served(running, kafka):
    """Every metric in the table of REFERENCE.md is served with exactly its labels, after one
    request.

    Alerts and dashboards rely on no other name and group by no other label.
    """
    trace_id = secrets.token_bytes(16)
    assert running.export_http("/v1/traces", spans_request([trace_id]).SerializeToString()).status_code == 200
    messages_of(kafka, [trace_id], 1)
    documented = {
        name: set(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(REFERENCE.read_text())
    }
    assert documented

    def differ() -> dict[str, tuple]:
        found = served(running.metrics())
        return {
            name: (labels, found.get(name))
            for name, labels in documented.items()
            if found.get(name) != labels
        }

    eventually(
        lambda: not differ(), "every metric of REFERENCE.md", seen=lambda: f"{differ()}\n{running.metrics()}"
    )
