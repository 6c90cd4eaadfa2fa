"""Upgrade, rollback and kill switch by helm on a real API server.

The commands are those of UPGRADING.md and docs/operations.md.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kube_region import Region, program
from readiness import wait_ready
from spillway_lab.testing.servers import ROOT

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]
PAGE = (ROOT / "UPGRADING.md").read_text() + (ROOT / "docs" / "operations.md").read_text()
COMMANDS = re.findall(r"^ {4,}(helm .+)$", PAGE, re.MULTILINE)
# each is a release of the chart of the same name
RELEASES = ("spillway-global", "spillway-cluster")
LEAST = {
    "spillway-global": {"kafka": {"brokers": "kafka:9093", "clusters": ["west"]}},
    "spillway-cluster": {"cluster": {"name": "west"}, "collector": {"kafka": {"brokers": "kafka:9093"}}},
}
BEFORE = "0.0.9"


def command(*beginning: str, kill: bool = False) -> list[str]:
    """Returns the only command of the pages with this beginning.

    With `kill` it is the one with the kill switch, otherwise the one without.
    """
    [found] = [
        words
        for words in map(shlex.split, COMMANDS)
        if words[1 : 1 + len(beginning)] == list(beginning) and ("guardrails.kill=true" in words) == kill
    ]
    return found


def helm(region: Region, words: list[str], values: dict | None = None) -> None:
    """Runs a command as a person types it at the top of the repository.

    The person's kubeconfig has this region's context.
    """
    words = [region.name if word in ("GLOBAL", "CLUSTER") else word for word in words[1:]]
    values_flags = ["--values", "-"] if values else []
    done = subprocess.run(
        [program("helm"), *words, *values_flags], input=json.dumps(values), cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"KUBECONFIG": str(region.kubeconfig)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def chart_before(chart: str, folder: Path) -> Path:
    """Writes a copy of the chart that resembles a previous version.

    It names another version of the images and lacks one of today's values.
    """
    older = folder / chart
    shutil.copytree(ROOT / "infra/helm" / chart, older, symlinks=False)
    for file, pattern, new in (
        ("Chart.yaml", r"appVersion: .*", f'appVersion: "{BEFORE}"'),
        ("values.yaml", r"  digests: .*\n", ""),
        ("templates/_helpers.tpl", r".*image\.digests.*\n", ""),
    ):
        text = (older / file).read_text()
        changed, count = re.subn(pattern, new, text)
        assert count == 1, file
        (older / file).write_text(changed)
    return older


def versions(region: Region) -> set[str]:
    """Returns the image tags of all workloads. Jobs keep those of the release that ran them."""
    found = set()
    for kind in ("deployment", "statefulset"):
        for workload in region.items(kind):
            for container in workload["spec"]["template"]["spec"]["containers"]:
                found.add(container["image"].rpartition(":")[2])
    return found


@pytest.fixture(scope="module")
def region(make_region: Callable[[str], Region], tmp_path_factory: pytest.TempPathFactory) -> Region:
    """A cluster with both releases in a previous version."""
    region, folder = make_region("releases"), tmp_path_factory.mktemp("charts")
    region.kubectl("create", "namespace", "spillway")
    for release in RELEASES:
        values = LEAST[release] | {"image": {"registry": "registry.example/spillway"}}
        install = ["helm", "install", release, str(chart_before(release, folder)), "--namespace", "spillway"]
        helm(region, install, values)
    wait_ready(region)
    assert versions(region) == {BEFORE}
    return region


def test_upgrade_and_rollback(region: Region):
    """An upgrade keeps the values of the installation, beside a new value of the chart.

    After a rollback in the reverse order the previous version runs, and no migration ran.
    """
    [today] = re.findall(
        r'^appVersion: "?([\d.]+)', (ROOT / "infra/helm/spillway-global/Chart.yaml").read_text(), re.M
    )
    helm(region, command("upgrade", "spillway-global"))
    helm(region, command("upgrade", "spillway-cluster"))
    wait_ready(region)
    assert versions(region) == {today} != {BEFORE}
    jobs = uids(region, "job")
    helm(region, command("rollback", "spillway-cluster"))
    helm(region, command("rollback", "spillway-global"))
    wait_ready(region)
    assert versions(region) == {BEFORE} and uids(region, "job") == jobs


def test_the_kill_switch_reaches_the_file_alone(region: Region):
    """Neither a pod nor a Job is recreated for it, so it waits for no server."""
    helm(region, command("upgrade", "spillway-global"))
    wait_ready(region)
    running, jobs = uids(region, "pod"), uids(region, "job")
    helm(region, command("upgrade", "spillway-global", kill=True))
    wait_ready(region)
    assert uids(region, "pod") == running and uids(region, "job") == jobs
    guardrails = region.kubectl("get", "configmap", "spillway-guardrails", "-n", "spillway", "-o", "json")
    assert "kill: true" in json.loads(guardrails)["data"]["guardrails.yaml"].splitlines()


def uids(region: Region, kind: str) -> set[str]:
    return {item["metadata"]["uid"] for item in region.items(kind)}
