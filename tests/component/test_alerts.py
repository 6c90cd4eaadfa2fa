"""Alerts: valid rules on metrics that exist, with tests in both directions and runbooks."""

import re
import subprocess
from pathlib import Path

import metric_names
import pytest
import yaml
from spillway_lab.testing.programs import program

pytestmark = pytest.mark.component

ALERTS = metric_names.ROOT / "infra" / "alerts"
FILES = sorted(ALERTS.glob("*.yaml"))
RULES = [
    rule for file in FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]
]
RUNBOOK = metric_names.ROOT / "docs" / "operations.md"


def _promtool(*arguments: str, folder: Path = ALERTS) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_every_rule():
    """The check covers syntax, templates and promtool's own lints."""
    assert FILES
    _promtool("check", "rules", "--lint=all", "--lint-fatal", *(file.name for file in FILES))


def test_every_alert_fires_when_it_should_and_only_then():
    """promtool runs the rules over invented series.

    Each alert has a time at which it must be silent and one at which it must fire.
    """
    tests = sorted((ALERTS / "tests").glob("*.yaml"))
    _promtool("test", "rules", *(file.name for file in tests), folder=ALERTS / "tests")
    silent, firing = set(), set()
    for file in tests:
        for check in (
            case for test in yaml.safe_load(file.read_text())["tests"] for case in test["promql_expr_test"]
        ):
            [name] = re.findall(r'^count\(ALERTS\{alertname="(\w+)", alertstate="firing"\}\)$', check["expr"])
            (firing if check["exp_samples"] else silent).add(name)
    assert silent == firing == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_reads_what_boxes_serve_and_says_what_to_do(rule):
    """Its metrics and labels are in a component's table, and its anchor is in the runbook once.

    It has a waiting time, a severity, and texts whose labels the result has.
    """
    assert not metric_names.wrong(rule["expr"])
    assert rule["for"] and rule["labels"]["severity"] in ("critical", "warning")
    notes = rule["annotations"]
    labels = set(re.findall(r"\$labels\.(\w+)", notes["summary"] + notes["description"]))
    assert labels <= metric_names.shown(rule["expr"])
    assert notes["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert RUNBOOK.read_text().count(f"\n#### {rule['alert']}\n") == 1


def test_the_runbook_knows_no_alert_that_is_gone():
    """The runbook has one section per alert, and no other section under that heading."""
    section = RUNBOOK.read_text().split("\n## What to do per alert\n")[-1]
    assert re.findall(r"^#### (\w+)$", section, re.MULTILINE) == [
        rule["alert"]
        for name in ("global", "servers", "cluster")
        for rule in RULES
        if rule["alert"] in _of(name)
    ]


def _of(name: str) -> set[str]:
    groups = yaml.safe_load((ALERTS / f"{name}.yaml").read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"]}


def test_the_chart_names_clusters_as_the_alerts_do():
    """The chart's ServiceMonitors set the target label by which alerts and dashboards group."""
    chart = metric_names.ROOT / "infra" / "helm" / "spillway-cluster" / "templates" / "monitoring.yaml"
    assert re.findall(r"targetLabel: (\w+)", chart.read_text()) == ["cluster"]
    assert "by (cluster)" in (ALERTS / "cluster.yaml").read_text()


def test_what_nobody_serves_is_noticed():
    """The check itself works: unknown metrics, labels and groupings are named."""
    assert metric_names.wrong('sum by (topic) (rate(spillway_streams_nothing{topic="a"}[5m])) > 0') == [
        "spillway_streams_nothing: no box serves it",
        "topic: no metric of the expression has it",
    ]
    assert metric_names.wrong('up{colour="red"} == 0 and on (job) up offset 5m') == [
        "up: has no label colour"
    ]
    assert metric_names.wrong("max by (cluster, type) (spillway_relay_snapshot_resources)") == []
    assert metric_names.wrong("spillway_relay_push_to_ack_seconds") != []
    assert metric_names.wrong("sum by (le) (spillway_relay_push_to_ack_seconds_bucket)") == []
    assert metric_names.wrong("sum by (le) (spillway_relay_push_to_ack_seconds_sum)") != []
