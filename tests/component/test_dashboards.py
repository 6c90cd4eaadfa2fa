"""Dashboards: generated, well-formed, and with queries only on metrics that exist."""

import json
import re
import subprocess
import sys

import metric_names
import pytest
from spillway_lab.testing.programs import program

pytestmark = pytest.mark.component

FOLDER = metric_names.ROOT / "infra" / "grafana"
MODELS = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def test_they_are_what_the_script_writes():
    """The JSON files are generated and not edited by hand. `make check` checks the same."""
    subprocess.run([sys.executable, FOLDER / "generate.py", "--check"], check=True, timeout=60)
    assert set(MODELS) == {"overview", "pipeline", "cluster"}


@pytest.mark.parametrize("name", MODELS)
def test_a_dashboard_is_well_formed(name):
    """A dashboard has a stable uid, unique panel ids and no overlaps.

    Each query uses the variable of the data source.
    """
    model = MODELS[name]
    assert model["uid"] == f"spillway-{name}"
    panels = model["panels"]
    assert (
        len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels) > 0
    )
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    targets = [target for panel in panels for target in panel["targets"]]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}
    assert model["templating"]["list"][0]["type"] == "datasource"


@pytest.mark.parametrize("name", MODELS)
def test_every_query_reads_what_boxes_serve(name):
    """promtool accepts the query. Its metrics, labels and legend are in a component's table."""
    for target in (target for panel in MODELS[name]["panels"] for target in panel["targets"]):
        expression = target["expr"]
        done = subprocess.run(
            [program("promtool"), "promql", "format", "--experimental", expression],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{expression}: {done.stderr}"
        assert metric_names.read(expression) and not metric_names.wrong(expression)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= metric_names.shown(expression)
