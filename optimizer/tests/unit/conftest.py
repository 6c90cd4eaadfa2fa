"""Import paths, settings of an optimizer that reaches no server, and the golden telemetry."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from spillway_contracts import topology
from spillway_optimizer.solving.config import Optimizer
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.source_data import SourceData

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from planning import GOLDEN


@pytest.fixture
def settings() -> Callable[..., Optimizer]:
    """Returns a function that builds settings, such as settings(policy="local").

    It fills in what an operator must set. Its arguments override these values.
    """

    def make(**values: object) -> Optimizer:
        servers = {
            "clickhouse_url": "clickhouse://u:p@localhost:1/d",
            "nats_url": "nats://localhost:1",
            "redis_url": "redis://localhost:1/0",
            "health_listen": "h:1",
        }
        return Optimizer(**({"topology": "-", "policy": "spillway"} | servers | values))

    return make


@pytest.fixture
def data() -> SourceData:
    """The golden telemetry and topology, from which tests make plans."""
    telemetry = model_file.read(GOLDEN / "3_model.json")
    declared = topology.load(GOLDEN / "topology.yaml")
    return SourceData("golden", telemetry, declared, model_file.as_of(telemetry))
