"""One stack with pods for all end-to-end tests: started once, profiled, then under `spillway`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spillway_lab import demo, scenario, stack
from spillway_lab.control import Control
from spillway_lab.progress import Progress

sys.path.insert(0, str(Path(__file__).parent))

from loop_harness import Background, Loop

SCENARIO = Path(__file__).with_name("scenario.yaml")


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    progress = Progress()
    prepared = stack.prepare(scenario.load(SCENARIO), "e2e", policy="local")
    with stack.running(prepared):
        prepared.supervisor.wait_ready(240, progress.starting)
        control = Control(prepared)
        demo.profile(prepared, control, progress)
        control.set_policy("spillway")
        load_while_waiting = Background(prepared, "first", 30)
        control.wait_policy("spillway", 60, progress.show)
        load_while_waiting.samples()
        yield Loop(prepared, control)
