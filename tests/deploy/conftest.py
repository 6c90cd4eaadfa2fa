"""Three regions and the global one on real API servers, and the example to be applied to them."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from spillway_lab.testing.servers import ROOT

sys.path.insert(0, str(Path(__file__).parent))
from example import EXAMPLE, Example
from kube_region import Region, program, region_maker


@pytest.fixture(scope="session")
def make_region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Region]]:
    with region_maker(tmp_path_factory.mktemp("kubernetes")) as make:
        yield make


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Both charts, packed as users would: the library chart is inside."""
    folder = tmp_path_factory.mktemp("charts")
    sources = shutil.copytree(ROOT / "infra" / "helm", folder / "sources")  # -u writes beside the sources
    packed = {}
    for name in ("global", "cluster"):
        chart = sources / f"spillway-{name}"
        done = subprocess.run(
            [program("helm"), "package", "-u", str(chart), "-d", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        packed[name] = str(next(folder.glob(f"spillway-{name}-*.tgz")))
    return packed


@pytest.fixture(scope="session")
def example(
    tmp_path_factory: pytest.TempPathFactory, make_region: Callable[[str], Region], charts: dict[str, str]
) -> Example:
    """The example's own map; ways to the clusters and to the charts are this test's, and no Secret stays in a
    region's state."""
    map_ = yaml.safe_load((EXAMPLE / "regions.yaml").read_text())
    map_["charts"] = charts
    map_["secrets"]["write_only"] = True
    one = Example(tmp_path_factory.mktemp("example"), map_)
    for name in ("global", *map_["regions"]):
        one.place(name, make_region(name))
    return one
