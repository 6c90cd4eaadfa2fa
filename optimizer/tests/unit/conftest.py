"""Import paths of the test modules, and settings of an optimizer that reaches no server."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from spillway_optimizer.service.config import Optimizer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def settings() -> Callable[..., Optimizer]:
    """Returns a function that builds settings, such as settings(policy="local").

    It fills in what an operator must set. Its arguments override these values.
    """

    def make(**said: object) -> Optimizer:
        servers = {
            "clickhouse_url": "clickhouse://u:p@localhost:1/d",
            "nats_url": "nats://localhost:1",
            "redis_url": "redis://localhost:1/0",
            "health_listen": "h:1",
        }
        return Optimizer(**({"topology": "-", "policy": "spillway"} | servers | said))

    return make
