"""Drives the running optimizer and PAPA: `python -m spillway_optimizer steps`."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from spillway_lab.render.render import topology
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.scenario.variants import VARIANTS
from spillway_lab.simulator.indices import Weights
from spillway_lab.simulator.planner import weights

# Policies with hysteresis, judging and PAPA as the running service has them.
STEPPED = (
    "spillway",
    "spillway-no-papa",
    "spillway-frozen-curves",
    "spillway-frozen-no-papa",
    "papa-only",
    "l3",
    "l3-peak",
    "c3",
)


def command(scenario: Scenario, policy: str, folder: Path) -> list[str]:
    """Returns the command of a policy. `folder` gets the scenario's topology."""
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(topology(scenario), sort_keys=False))
    variant = VARIANTS[policy]
    return [
        sys.executable, "-m", "spillway_optimizer", "steps", "--topology", str(file),
        "--policy", variant.optimizer, "--papa" if variant.papa else "--no-papa",
    ]  # fmt: skip


class Stepped:
    """One process, which answers each document with the rules in force.

    `solves` counts the solves, and `papa` PAPA's steps by their outcome. It ends with the context.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self.solves, self.papa = 0, Counter[str]()

    def __enter__(self) -> "Stepped":
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def rules(self, at: float, model: dict[str, Any]) -> Weights:
        """Returns the rules in force at Unix second `at`, when the model is observed.

        Raises InvalidInput with the optimizer's words.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # they are pipes
        try:
            stdin.write(json.dumps({"at_ms": round(at * 1000), "model": model}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            raise InvalidInput([f"the optimizer has ended: {self._log.read_text().strip()}"])
        answer = json.loads(line)
        self.solves += bool(answer["solves"])
        self.papa.update(step["outcome"] for step in answer["papa_steps"])
        return weights(answer["rules"])
