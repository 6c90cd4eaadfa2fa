"""The path by which Envoys of other clusters check whether a pod's Envoy answers."""

import contextlib
from pathlib import Path

import httpx
import pytest
from mesh_of_two import Mesh
from spillway_contracts import names
from spillway_lab.render.pods import HOST
from spillway_lab.testing.servers import running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


def test_a_check_ends_at_the_pods_envoy(tmp_path: Path):
    """Checks are answered with and without the relay's routes.

    They reach no application, and the filter does not count them: a check causes no demand, load or
    span.
    """
    mesh = Mesh(tmp_path)
    pod = mesh.pod("cart")
    inbound = f"http://{HOST}:{pod.inbound_port}"

    def stats(prefix: str) -> dict[str, int]:
        page = httpx.get(f"http://{HOST}:{pod.admin_port}/stats?filter=^{prefix}", trust_env=False).text
        return {name: int(value) for name, _, value in (line.partition(": ") for line in page.splitlines())}

    def seen() -> dict[str, int]:
        """Returns the counters of requests. Counters of exports would grow without requests."""
        counted = stats("wasmcustom.spillway_inbound") | stats("cluster.spillway-app.upstream_rq_total")
        assert any(name.startswith("wasmcustom") for name in counted), "the filter runs"
        return counted

    def check() -> None:
        before = seen()
        for _ in range(5):
            assert httpx.get(inbound + names.XDS_ALIVE_PATH, trust_env=False).status_code == 200
        assert seen() == before

    with contextlib.ExitStack() as stack, contextlib.closing(mesh):
        stack.enter_context(running(mesh.envoy(pod)))
        before = seen()
        assert httpx.get(inbound + "/", trust_env=False).status_code == 200
        assert seen() != before, "a request is counted"
        check()
        stack.enter_context(running(mesh.relay([pod])))
        eventually(
            lambda: sum(stats("http.inbound.rds.spillway-inbound.update_success").values()), "relay's routes"
        )
        check()
