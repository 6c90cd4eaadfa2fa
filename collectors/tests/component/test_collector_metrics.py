"""The collector's own metrics, as alerts and dashboards read them."""

import re
import secrets
from pathlib import Path

import pytest
from collector_process import spans_request
from spillway_lab.testing.waiting import eventually
from topics import messages_of

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]

README = Path(__file__).parents[2] / "README.md"


def test_every_metric_of_the_readme_is_served(running, kafka):
    """What the README's table names is there once a request went its way; alerts rely on no other name."""
    trace_id = secrets.token_bytes(16)
    assert running.export_http("/v1/traces", spans_request([trace_id]).SerializeToString()).status_code == 200
    messages_of(kafka, [trace_id], 1)
    named = set(re.findall(r"^\| `(otelcol_\w+)` \|", README.read_text(), re.MULTILINE))
    assert named

    def missing() -> set[str]:
        return named - set(re.findall(r"^(\w+)[{ ]", running.metrics(), re.MULTILINE))

    eventually(
        lambda: not missing(), "every metric of the README", seen=lambda: f"{missing()}\n{running.metrics()}"
    )
