"""The sidecar of infra/helm for two applications, run by a real Envoy, relay and collector.

They use real certificates, and the environment and arguments that the charts give them. The test
only replaces Kubernetes: names become addresses and volumes become folders.
"""

import contextlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sidecar_pods import HOST, Application, Counts, Pod, Ports, get
from sidecar_servers import accepted, agent, certify_agent, collector, relay
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.testing.servers import running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


@pytest.fixture
def store(tmp_path: Path) -> Keystore:
    made = Keystore(tmp_path / "tls")
    made.issue([
        certificates.relay("west", (HOST,)),
        certificates.collector("west", (HOST,)),
        *(certificates.pod(service, "west", service) for service in ("gate", "cart")),
    ])  # fmt: skip
    return made


@pytest.fixture
def application() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((HOST, 0), Application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_envoy_takes_the_rendered_bootstrap_without_a_warning(tmp_path: Path, store: Keystore):
    """What helm renders for an application is valid, including the filter's configuration.

    It uses nothing deprecated.
    """
    command = Pod("cart", tmp_path / "cart", 8080).prepare(store.folder / "cart", Ports())
    done = subprocess.run(
        [*command, "--mode", "validate"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


def test_a_request_goes_through_two_sidecars_and_its_spans_arrive(
    tmp_path: Path, store: Keystore, application: int
):
    """An application that uses its Envoy as HTTP proxy reaches another one by the relay's routes.

    Both Envoys' spans reach the collector, which accepts them only over mutual TLS.
    """
    ports = Ports()
    gate, cart = Pod("gate", tmp_path / "gate", application), Pod("cart", tmp_path / "cart", application)
    commands = {pod.service: pod.prepare(store.folder / pod.service, ports) for pod in (gate, cart)}
    endpoints = [{"service": "cart", "cluster": "west", "addresses": [f"{HOST}:{cart.inbound}"]}]
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(relay(tmp_path, store, ports, endpoints)))
        stack.enter_context(running(collector(tmp_path, store, ports)))
        for pod in (gate, cart):
            stack.enter_context(running(pod.server(commands[pod.service])))
        caller = stack.enter_context(httpx.Client(proxy=f"http://{HOST}:{gate.outbound}", trust_env=False))
        ask = lambda: caller.get("http://cart/items/7", timeout=60)  # noqa: E731
        answer = eventually(lambda: (a := ask()).status_code == 200 and a, "routes of the relay")
        assert answer.json()["path"] == "/items/7"
        assert answer.json()["traceparent"], "the filter began a trace"
        eventually(lambda: accepted(ports) >= 2, "a client's and a server's span")
        handshakes = get(f"http://{HOST}:{gate.admin}/stats?filter=cluster.spillway-collector.ssl.handshake")
        assert int(handshakes.rpartition(" ")[2]) > 0


def test_half_of_the_traces_are_sampled(tmp_path: Path, store: Keystore, application: int):
    """For a namespace with its own ratio, half of the requests leave a span.

    Each request begins a trace, and all count as arrivals.
    """
    sampling = {"sampling": {"ratio": 1, "namespaces": {"shop": 0.5}}}
    gate, requests = Pod("gate", tmp_path / "gate", application, sampling), 400
    with running(gate.server(gate.prepare(store.folder / "gate", Ports()))):
        for _ in range(requests):
            assert httpx.get(f"http://{HOST}:{gate.inbound}/", trust_env=False, timeout=60).status_code == 200
        counts = Counts.settled(gate.admin)
    assert counts.arrivals == requests
    counts.check(requests, 0.5)


def test_envoy_refuses_a_collector_of_another_name(tmp_path: Path, store: Keystore, application: int):
    """A server with the same authority but another identity, here the relay's, gets no spans."""
    ports = Ports()
    gate = Pod("gate", tmp_path / "gate", application)
    command = gate.prepare(store.folder / "gate", ports)
    stats = f"http://{HOST}:{gate.admin}/stats?filter=cluster.spillway-collector.ssl.fail_verify_san"
    with running(collector(tmp_path, store, ports, "relay-west")), running(gate.server(command)):
        get(f"http://{HOST}:{gate.inbound}/")  # creates a span
        eventually(lambda: int(get(stats).rpartition(" ")[2] or 0) > 0, "a refusal")
        assert accepted(ports) == 0


def test_spans_come_by_way_of_an_agent(tmp_path: Path, store: Keystore, application: int):
    """An agent with the DaemonSet's environment takes an Envoy's spans to the gateway.

    Both connections use mutual TLS.
    """
    certify_agent(store)
    ports, gateway = Ports(), Ports()
    gate = Pod("gate", tmp_path / "gate", application)
    command = gate.prepare(store.folder / "gate", ports)
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(collector(tmp_path, store, gateway)))
        stack.enter_context(running(agent(tmp_path, store, ports, gateway)))
        stack.enter_context(running(gate.server(command)))
        get(f"http://{HOST}:{gate.inbound}/")  # creates a span
        eventually(lambda: accepted(gateway) >= 1, "a span at the gateway", seen=lambda: accepted(ports))
