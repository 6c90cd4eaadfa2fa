"""Asks the real optimizer for rules: `python -m spillway_optimizer plan`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from spillway_lab.render.render import topology
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator.indices import Weights

# The baselines. What hysteresis and PAPA belong to is in stepped.py.
PLANNED = (
    "local", "failover", "waterfall", "waterfall-worst-case", "waterfall-central", "round-robin", "dealer", "static",
)  # fmt: skip
_WORST_CASE = "-worst-case"


class Planner:
    """Plans one scenario's rules. `folder` gets its topology and the newest model."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._topology = folder / "topology.yaml"
        self._topology.write_text(yaml.safe_dump(topology(scenario), sort_keys=False))
        # Without declared thresholds, Waterfall's are the capacity if every request were of the
        # heaviest class (SLATE section 5.1).
        self._undeclared = folder / "topology-undeclared.yaml"
        self._undeclared.write_text(yaml.safe_dump(_undeclared(topology(scenario)), sort_keys=False))

    def rules(self, policy: str, model: dict[str, Any]) -> Weights:
        """Returns the policy's rules for this model.

        Raises InvalidInput with the optimizer's words.
        """
        name = policy.removesuffix(_WORST_CASE)
        topology_file = self._undeclared if policy.endswith(_WORST_CASE) else self._topology
        file = self._folder / "model.json"
        file.write_text(json.dumps(model))
        command = [
            sys.executable, "-m", "spillway_optimizer", "plan", "--policies", name, "--json",
            "--topology", str(topology_file), "--model", str(file),
        ]  # fmt: skip
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            raise InvalidInput([f"{policy}: the optimizer plans nothing: {found.stderr.strip()}"])
        answer = json.loads(found.stdout)["policies"][name]
        if "error" in answer:
            raise InvalidInput([f"{policy}: {answer['error']}"])
        return weights(answer["rules"])


def weights(rules: list[dict[str, Any]]) -> Weights:
    """Returns the weights of rules in the optimizer's JSON."""
    return {
        (rule["source_cluster"], rule["source_service"], rule["class"]): rule["weights"] for rule in rules
    }


def _undeclared(document: dict[str, Any]) -> dict[str, Any]:
    """Returns a topology without thresholds: each is 0, so the optimizer uses its own."""
    for service in document["services"]:
        for placement in service["placements"]:
            placement["threshold_rps"] = 0.0
    return document
