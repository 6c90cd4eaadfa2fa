"""The optimizer or PAPA as a process in a test."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import STOP_S, eventually

LEASE = {"SPILLWAY_OPTIMIZER_LEASE_S": "10"}  # longer than any pause of a busy machine
TOPOLOGY = Path(__file__).resolve().parents[3] / "contracts" / "golden" / "topology.yaml"


class Process:
    """A process of `python -m spillway_optimizer ROLE`, with periods that suit tests."""

    def __init__(self, role: str, folder: Path, environment: dict[str, str]):
        self.port = servers.free_port()
        self.log = folder / f"{role}-{self.port}.log"
        settings = {
            "SPILLWAY_TOPOLOGY": str(TOPOLOGY),
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{self.port}",
            "SPILLWAY_POLICY": "spillway",
            "SPILLWAY_OPTIMIZER_PERIOD_S": "0.5",
            "SPILLWAY_OPTIMIZER_RENEW_S": "3",
            "SPILLWAY_OPTIMIZER_LEASE_S": "2",
            "SPILLWAY_OPTIMIZER_DEMAND_HALF_LIFE_S": "0",
            "SPILLWAY_OPTIMIZER_AUDIT_S": "0",  # tests count the triggers of solves
            "SPILLWAY_PAPA_LEASE_S": "3",
            **environment,
        }
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "spillway_optimizer", role],
                env=os.environ | settings,
                stdout=log,
                stderr=log,
            )

    def health(self) -> dict | None:
        """Returns the body of /readyz if its status is 200, else None."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def metrics(self) -> dict[tuple[str, str], float]:
        """Returns every sample of /metrics.

        A key is the name and the labels' values, joined by commas in the order of the labels'
        names.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, ",".join(sample.labels.values())): sample.value for sample in samples}

    def wait_ready(self) -> None:
        """Waits until the process is healthy."""
        eventually(self.health, "healthy", seen=self.tail)

    def tail(self) -> str:
        """Returns the end of the process's log."""
        return self.log.read_text()[-2000:]

    def end(self) -> None:
        """Sends SIGTERM. The process must then exit with code 0."""
        if self.popen.poll() is None:
            self.popen.terminate()
            assert self.popen.wait(STOP_S) == 0, self.tail()
