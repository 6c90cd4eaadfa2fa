"""A pod's files as the lab renders them, used by a real Envoy."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import bootstrap, files, templates
from spillway_lab.render.pods import HOST, LOCAL, Pod
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.testing.servers import ROOT, free_port
from spillway_lab.testing.waiting import STOP_S, eventually

ENVOY = os.environ.get("SPILLWAY_ENVOY", str(ROOT / ".spillway/venv/bin/envoy"))
CLUSTER, OTHER = "one", "two"


@dataclass
class PodEnvoy:
    """A pod's rendered files, and its Envoy while it runs."""

    pod: Pod
    folder: Path
    xds_port: int
    otlp_port: int

    @property
    def store(self) -> Keystore:
        return Keystore(self.folder / "tls")

    def command(self, *more: str) -> list[str]:
        path = self.folder / "envoy" / f"{self.pod.name}.yaml"
        return [ENVOY, "-c", str(path), "--disable-hot-restart", "--concurrency", "1", *more]

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen]:
        log = (self.folder / "envoy.log").open("wb")
        process = subprocess.Popen(self.command("-l", "warning"), stdout=log, stderr=log)
        try:
            eventually(lambda: process.poll() is not None or self.ready(), "Envoy is ready")
            assert process.poll() is None, (self.folder / "envoy.log").read_text()[-2000:]
            yield process
            assert process.poll() is None, (self.folder / "envoy.log").read_text()[-2000:]
        finally:
            process.terminate()
            process.wait(STOP_S)

    def ready(self) -> bool:
        return self.status(self.pod.admin_port, "/ready") == 200

    def status(self, port: int, path: str) -> int:
        try:
            return httpx.get(f"http://{HOST}:{port}{path}", trust_env=False, timeout=2).status_code
        except httpx.HTTPError:
            return 0

    def count(self, statistic: str, cluster: str = "spillway-xds") -> int:
        """Returns a counter of the Envoy cluster `cluster`.

        It is the one of the relay, or spillway-collector for the collector.
        """
        return self.stat(f"cluster.{cluster}.{statistic}")

    def stat(self, name: str) -> int:
        """Returns a counter by its full name, and 0 while it does not exist."""
        text = httpx.get(f"http://{HOST}:{self.pod.admin_port}/stats?filter={name}", trust_env=False).text
        return sum(int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}: "))


def prepared(folder: Path, otlp_port: int) -> PodEnvoy:
    """Prepares a pod of CLUSTER without starting it.

    Issues certificates in both CLUSTER and OTHER: one for a pod of the service, and one each for a
    relay, a collector and a sender.
    """
    pod = Pod(CLUSTER, "cart", 0, 0, *(free_port() for _ in range(5)), edge=False)
    made = PodEnvoy(pod, folder, free_port(), otlp_port)
    around = Surroundings(
        xds=[], otlp=[], toxiproxy="", templates=templates.read(ROOT / "infra"),
        filter_wasm=ROOT / ".spillway/wasm/spillway_filter.wasm", out=folder, network=LOCAL,
    )  # fmt: skip
    files.write(folder, bootstrap.files(pod, f"{HOST}:{made.xds_port}", f"{HOST}:{otlp_port}", around))
    made.store.issue(
        identity
        for cluster in (CLUSTER, OTHER)
        for identity in (
            certificates.pod(f"{cluster}-cart-0", cluster, "cart"),
            certificates.relay(cluster, (HOST,)),
            certificates.collector(cluster, (HOST,)),
            certificates.sender(cluster),
        )
    )
    return made
