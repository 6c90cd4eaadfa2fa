"""Real Envoys, emulators and a WAN: a caller in one cluster, and its callee in two.

No server of Spillway runs. Envoys start without their relays, and spans are dropped.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import lab_processes as lab
import numpy as np
import yaml
from spillway_lab.keys.keystore import Keystore
from spillway_lab.load import load
from spillway_lab.load.samples import REMOTE
from spillway_lab.render import files, pods, ports, templates
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.render.render import environment, identities, render
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.scenario import scenario
from spillway_lab.stack import balancing
from spillway_lab.testing.servers import ROOT, Server, answers, free_port, running

HOME = ROOT / ".spillway"
RESPONSE_BYTES = 2000
# A pod of `backend` has two workers that need 100 ms per request: it serves 20 per second.
APPLICATION = {
    "call_timeout_ms": 5000,
    "services": {
        "frontend": {
            "workers": 64,
            "queue": 1000,
            "queue_timeout_ms": 3000,
            "endpoints": [
                {
                    "method": "GET",
                    "path": "/x",
                    "service_time": {"distribution": "constant", "mean_ms": 1},
                    "response_bytes": 10,
                    "calls": [[{"service": "backend", "method": "GET", "path": "/y"}]],
                }
            ],
        },
        "backend": {
            "workers": 2,
            "queue": 40,
            "queue_timeout_ms": 2000,
            "endpoints": [
                {
                    "method": "GET",
                    "path": "/y",
                    "service_time": {"distribution": "constant", "mean_ms": 100},
                    "response_bytes": RESPONSE_BYTES,
                }
            ],
        },
    },
}
SCENARIO = {
    "application": "application.yaml",
    "clusters": {"west": {"region": "w"}, "east": {"region": "e"}},
    "links": [
        {
            "source_cluster": "west",
            "destination_cluster": "east",
            "both_ways": True,
            "rtt_ms": 10,
            "egress_usd_per_gb": 1,
        }
    ],
    "placement": {"frontend": {"west": {}}, "backend": {"west": {}, "east": {}}},
    "usd_per_ms_per_million_requests": 0.1,
    "requests": [{"service": "frontend", "method": "GET", "path": "/x"}],
    "load": {"measure": {"warm_up_seconds": 1, "measured_seconds": 1, "rps": {"west": 1}}},
    "policies": ["envoy-load-aware"],
}


@dataclass(frozen=True)
class Lab:
    """Running pods and Envoys in the run folder, without any server of Spillway."""

    scenario: scenario.Scenario
    layout: pods.Plan
    run: Path

    @property
    def callers(self) -> list[balancing.Caller]:
        return balancing.callers(self.scenario, self.layout.pods)

    def pod(self, service: str, cluster: str) -> Pod:
        [pod] = [p for p in self.layout.pods if (p.service, p.cluster) == (service, cluster)]
        return pod

    def remote_share(self, rps: float, beside_rps: float = 0) -> float:
        """Sends requests to `frontend` for 4 s.

        Returns the share that the other cluster served. At the same time `beside_rps` requests
        enter `backend` in the other cluster.
        """
        asked = [self._attack("west", self.pod("frontend", "west"), "/x", rps)]
        if beside_rps:
            asked.append(self._attack("east", self.pod("backend", "east"), "/y", beside_rps))
        generator = load.Generator(self.run / "load", lab.program("vegeta"), sent_at_least=0)
        return float(np.mean(load.run(asked, generator, "t")["west"].remote == REMOTE))

    def _attack(self, cluster: str, pod: Pod, path: str, rps: float) -> load.Attack:
        target = json.dumps({"method": "GET", "url": f"http://{HOST}:{pod.inbound_port}{path}"})
        return load.Attack(cluster, [target], rps, 4)

    def stat(self, name: str) -> int:
        """Returns a counter of the policy at the caller's Envoy."""
        [value] = self.stats(f"^cluster.load-aware/backend.load_aware_locality.{name}$").values()
        return value

    def stats(self, pattern: str) -> dict[str, int]:
        """Returns the counters of the caller's Envoy whose names match."""
        url = f"http://{HOST}:{self.pod('frontend', 'west').admin_port}/stats"
        found = httpx.get(url, params={"format": "json", "filter": pattern}).json()["stats"]
        return {stat["name"]: stat["value"] for stat in found if "name" in stat}


@contextlib.contextmanager
def running_lab(tmp_path: Path) -> Iterator[Lab]:
    """Runs the lab until the block ends."""
    (tmp_path / "application.yaml").write_text(yaml.safe_dump(APPLICATION))
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO, sort_keys=False))
    given = scenario.load(tmp_path / "scenario.yaml")
    base, nowhere, run = (
        ports.free_base(),
        [f"{HOST}:{free_port()}" for _ in given.clusters],
        tmp_path / "run",
    )
    around = Surroundings(
        xds=nowhere,
        otlp=nowhere,
        toxiproxy=f"{HOST}:{free_port()}",
        templates=templates.read(ROOT / "infra"),
        filter_wasm=HOME / "wasm/spillway_filter.wasm",
        out=run,
    )
    layout = pods.plan(given, base)
    files.write(run, render(given, base, around))
    Keystore(around.tls_folder()).issue(identities(given, base, around))
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(toxiproxy(around.toxiproxy, run)))
        for pod in layout.pods:
            stack.enter_context(lab.pod(environment(given, pod, around), run / f"{pod.name}.log"))
            stack.enter_context(running(envoy(pod, run)))
        command = [sys.executable, "-m", "spillway_lab", "wan", "--plan", str(run / "wan.json")]
        subprocess.run([*command, "--toxiproxy", around.toxiproxy, "--once"], check=True)
        yield Lab(given, layout, run)


def toxiproxy(address: str, run: Path) -> Server:
    host, _, port = address.rpartition(":")
    command = [lab.program("toxiproxy-server"), "-host", host, "-port", port]
    command += ["-config", str(run / "toxiproxy.json")]
    request = b"GET /version HTTP/1.0\r\n\r\n"
    return Server(address, command, run / "toxiproxy.log", lambda: answers(int(port), request, b"200 OK"))


def envoy(pod: Pod, run: Path) -> Server:
    command = [str(HOME / "venv/bin/envoy"), "-c", str(run / f"envoy/{pod.name}.yaml"), "-l", "warning"]
    command += ["--concurrency", "1", "--disable-hot-restart"]
    request = b"GET /ready HTTP/1.1\r\nHost: admin\r\n\r\n"
    return Server(
        pod.name, command, run / f"{pod.name}-envoy.log", lambda: answers(pod.admin_port, request, b"200 OK")
    )
