"""Pods that start while the relay is away: real Envoys, and a real relay that is killed."""

import concurrent.futures
import contextlib
import threading
from pathlib import Path

import httpx
import pytest
import yaml
from mesh_of_two import Mesh, status
from spillway_lab.render.pods import HOST
from spillway_lab.testing.servers import ROOT, free_port, running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


def probes(port: int) -> dict:
    """Returns the listener for probes, as the sidecar chart fills it in."""
    text = (ROOT / "infra/envoy/ready.yaml").read_text()
    text = text.replace("${ENVOY_READY_HOST}", HOST).replace("${ENVOY_READY_PORT}", str(port))
    return yaml.safe_load(text)


def calls(port: int, end: threading.Event) -> list[int]:
    """Calls cart repeatedly until `end` is set, and returns the statuses."""
    seen = []
    with httpx.Client(headers={"host": "cart"}, trust_env=False, timeout=30) as client:
        while not end.wait(0.02):
            seen.append(client.get(f"http://{HOST}:{port}/").status_code)
    return seen


def test_a_rollout_while_the_relay_is_away_loses_no_request(tmp_path: Path):
    """The new pod's Envoy starts without a relay.

    It accepts requests for its application from its first answer on, and reports that it cannot
    make calls. When the old pod ends, all of the caller's requests are answered. When the relay is
    back, the new pod has its routes, names classes and is ready.
    """
    mesh = Mesh(tmp_path)
    caller, old, new = mesh.pod("gate"), mesh.pod("cart"), mesh.pod("cart", 1)
    ready = free_port()
    end = threading.Event()
    with (
        contextlib.ExitStack() as stack,
        contextlib.closing(mesh),
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        stack.callback(end.set)
        relay = mesh.relay([old, new])
        stack.enter_context(running(relay))
        envoy_of_old = mesh.envoy(old)
        stack.enter_context(running(envoy_of_old))
        stack.enter_context(running(mesh.envoy(caller)))
        eventually(lambda: status(caller.outbound_port, "/", "cart") == 200, "routes to cart")
        answers = threads.submit(calls, caller.outbound_port, end)
        relay.kill()

        stack.enter_context(running(mesh.envoy(new, probes(ready))))
        first = eventually(lambda: status(new.inbound_port, "/"), "an answer of the new pod")
        assert first == 200
        assert status(ready, "/live") == 200
        assert status(ready, "/ready") == 503, "its own calls have no routes"
        assert status(new.outbound_port, "/", "cart") == 503

        # This is how a pod ends: it accepts no new connections, and pending requests are answered.
        httpx.post(f"http://{HOST}:{old.admin_port}/drain_listeners", trust_env=False)
        eventually(lambda: connections(old.admin_port) == 0, "callers have left the old pod")
        envoy_of_old.stop()
        eventually(lambda: requests(new.admin_port) > 20, "the caller's requests come to the new pod")
        end.set()
        statuses = answers.result()
        assert statuses.count(200) == len(statuses) > 0, f"{len(statuses) - statuses.count(200)} were lost"

        relay.start()
        eventually(lambda: status(ready, "/ready") == 200, "the new pod is ready")
        assert status(new.inbound_port, "/") == 200
        assert status(new.outbound_port, "/", "cart") == 200


def requests(admin_port: int) -> int:
    page = f"http://{HOST}:{admin_port}/stats?filter=http.inbound.downstream_rq_2xx"
    return int(httpx.get(page, trust_env=False).text.rpartition(" ")[2] or 0)


def connections(admin_port: int) -> int:
    page = f"http://{HOST}:{admin_port}/stats?filter=http.inbound.downstream_cx_active"
    return int(httpx.get(page, trust_env=False).text.rpartition(" ")[2] or 0)


def test_an_application_cannot_speak_for_its_proxy(tmp_path: Path):
    """Callers' Envoys trust some response headers as set by the pod's own Envoy.

    Such headers do not leave the pod when the application sets them, with the relay's routes and
    before there are any.
    """
    mesh = Mesh(tmp_path)
    pod = mesh.pod("cart")

    def passed() -> set[str]:
        names = ("x-spillway-no-answer", "x-envoy-immediate-health-check-fail", "x-of-its-own")
        answers = {
            n: httpx.get(f"http://{HOST}:{pod.inbound_port}/header/{n}", trust_env=False) for n in names
        }
        assert {a.status_code for a in answers.values()} == {200}
        return {name for name, answer in answers.items() if name in answer.headers}

    with contextlib.ExitStack() as stack, contextlib.closing(mesh):
        stack.enter_context(running(mesh.envoy(pod)))
        assert passed() == {"x-of-its-own"}
        stack.enter_context(running(mesh.relay([pod])))
        page = f"http://{HOST}:{pod.admin_port}/stats?filter=rds.spillway-inbound.update_success"
        eventually(
            lambda: int(httpx.get(page, trust_env=False).text.rpartition(" ")[2] or 0), "the relay's routes"
        )
        assert passed() == {"x-of-its-own"}
