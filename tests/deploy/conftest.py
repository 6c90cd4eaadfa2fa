"""Three regions and a global one on real API servers, and the example that is applied to them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "component"))
sys.path.insert(0, str(Path(__file__).parent))
from example import EXAMPLE, Example
from kube_region import Region, region_maker


@pytest.fixture(scope="session")
def make_region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Region]]:
    with region_maker(tmp_path_factory.mktemp("kubernetes")) as make:
        yield make


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory, make_region: Callable[[str], Region]) -> Example:
    """The example's own map and charts, with access to this test's clusters.

    No Secret is stored in a region's state, and south runs the agents.
    """
    map_ = yaml.safe_load((EXAMPLE / "regions.yaml").read_text())
    map_["secrets"]["write_only"] = True
    map_["regions"]["south"]["values"] = {"agent": {"enabled": True}}
    example = Example(tmp_path_factory.mktemp("example"), map_)
    for name in ("global", *map_["regions"]):
        example.place(name, make_region(name))
    return example
