"""Versions of bundled software.

There is one ClickHouse version everywhere, and no provider changes its major version by itself.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TERRAFORM = sorted(ROOT.glob("terraform/*/**/*.tf"))
_PROVIDERS = re.compile(r"required_providers \{\n(.*?)\n\s*\}\n", re.DOTALL)


def tag(image: str) -> str:
    return image.rpartition(":")[2]


def test_compose_and_the_chart_bring_the_clickhouse_that_tests_run():
    """Servers, Keeper, and the engine of the tests (`chdb-core`) have one major.minor version."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["clickhouse"]["image"]
    chart = yaml.safe_load((ROOT / "infra/helm/spillway-global/values.yaml").read_text())
    bundled = chart["bundled"]["clickhouse"]
    locked = (ROOT / "infra/clickhouse/requirements.txt").read_text()
    [engine] = re.findall(r"^chdb-core==(\d+\.\d+)\.", locked, re.MULTILINE)
    assert {tag(compose), tag(bundled["image"]), tag(bundled["keeper"]["image"])} == {engine}


def providers() -> dict[str, list[str]]:
    """Returns the required providers of each file, as lines of the block."""
    blocks = {path: _PROVIDERS.findall(path.read_text()) for path in TERRAFORM}
    return {
        str(path.relative_to(ROOT)): [line for block in found for line in block.splitlines() if line.strip()]
        for path, found in blocks.items() if found
    }  # fmt: skip


@pytest.mark.parametrize("file", providers())
def test_no_provider_changes_its_major_version_by_itself(file: str):
    """Each version is `~>` a major and minor number, in modules and in examples."""
    for line in providers()[file]:
        assert re.search(r'version = "~> \d+\.\d+"', line), line


def test_every_required_provider_is_looked_at():
    """Every file that requires a provider is among those found above."""
    named = {str(p.relative_to(ROOT)) for p in TERRAFORM if "required_providers" in p.read_text()}
    assert named == set(providers()) and len(named) >= 5
