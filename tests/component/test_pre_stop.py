"""The end of a pod: the sidecar's preStop hook as helm renders it, with the charts' Envoy.

The test only replaces Kubernetes: it runs the hook in the container's place and signals Envoy after
it.
"""

import concurrent.futures
import contextlib
import http.server
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cluster_chart
import httpx
import pytest
from sidecar_pods import HOST, Application, Pod, Ports
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.testing.servers import running

pytestmark = pytest.mark.component
ADMIN = "127.0.0.1/15000"  # the chart's address; in Kubernetes each pod has its own


class KeptApplication(Application):
    """Keeps connections open, so that Envoy is the one that ends them."""

    protocol_version = "HTTP/1.1"


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """An application's Envoy.

    Relay and collector are away, which does not affect inbound requests.
    """
    store = Keystore(tmp_path / "tls")
    store.issue([certificates.pod("cart", "west", "cart")])
    application = http.server.ThreadingHTTPServer((HOST, 0), KeptApplication)
    threading.Thread(target=application.serve_forever, daemon=True).start()
    made = Pod("cart", tmp_path / "cart", application.server_port)
    with running(made.server(made.prepare(store.folder / "cart", Ports()))):
        yield made
    application.shutdown()
    application.server_close()


def hook(admin: int) -> list[str]:
    values = {"cluster": "west", "image": "cart:1", "envoyImage": "spillway-envoy:1"}
    example = cluster_chart.render(values, cluster_chart.CHARTS / "examples/cart", "shop")
    (sidecar,) = cluster_chart.pods(example)["cart"]["initContainers"]
    command = sidecar["lifecycle"]["preStop"]["exec"]["command"]
    assert ADMIN in command[-1]
    return [part.replace(ADMIN, f"{HOST}/{admin}") for part in command]


def answers_until(done: concurrent.futures.Future, port: int) -> list[httpx.Response]:
    """Returns the answers to a client that keeps its connection.

    The client sends one request after another.
    """
    seen = []
    with httpx.Client(trust_env=False, timeout=30) as client:
        while not done.done():
            seen.append(client.get(f"http://{HOST}:{port}/"))
            time.sleep(0.05)
    return seen


def goaway_until(done: concurrent.futures.Future, port: int) -> bool:
    """Whether an HTTP/2 client with prior knowledge gets a GOAWAY frame on its connection."""
    with socket.create_connection((HOST, port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(0x4))
        stream = connection.makefile("rb")
        number = 1
        while not done.done():
            # GET / of http://cart, with all headers but the authority from HPACK's static table.
            connection.sendall(frame(0x1, 0x5, number, b"\x82\x86\x84\x41\x04cart"))
            while (got := read_frame(stream)) != (0x1, number):  # response headers
                if got[0] == 0x7:
                    return True
            number += 2
            time.sleep(0.05)
    return False


def frame(kind: int, flags: int = 0, number: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + payload


def read_frame(stream) -> tuple[int, int]:
    head = stream.read(9)
    assert len(head) == 9, "closed without a GOAWAY"
    stream.read(int.from_bytes(head[:3], "big"))
    return head[3], int.from_bytes(head[5:], "big")


def test_an_image_without_bash_waits_too(tmp_path: Path):
    """The chart has this option because Kubernetes ends a pod at once if its hook cannot run."""
    chart = tmp_path / "cart"
    shutil.copytree(cluster_chart.CHARTS / "examples/cart", chart)
    template = chart / "templates/deployment.yaml"
    text = template.read_text()
    template.write_text(text.replace('dict "cluster"', 'dict "drain" false "cluster"', 1))
    values = {"cluster": "west", "image": "cart:1", "envoyImage": "spillway-envoy:1"}
    (sidecar,) = cluster_chart.pods(cluster_chart.render(values, chart, "shop"))["cart"]["initContainers"]
    assert sidecar["lifecycle"]["preStop"] == {"sleep": {"seconds": 5}}


def test_clients_that_keep_connections_are_sent_away(pod: Pod):
    """While the hook runs, every request is answered.

    HTTP/1.1 clients get `connection: close` and HTTP/2 clients get GOAWAY. The application's own
    calls do not.
    """
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as threads:
        done = threads.submit(subprocess.run, hook(pod.admin), check=True, capture_output=True, timeout=30)
        first = threads.submit(answers_until, done, pod.inbound)
        second = threads.submit(goaway_until, done, pod.inbound)
        calls = threads.submit(answers_until, done, pod.outbound)
        done.result()
        inbound, outbound = first.result(), calls.result()
        assert second.result(), "no GOAWAY"
    assert time.monotonic() - began >= 5, "callers' relays have no time to drop the pod"
    assert {answer.status_code for answer in inbound} == {200}
    assert closes(inbound) > 0, f"none of {len(inbound)} answers says that the connection ends"
    assert closes(outbound) == 0, "the application is cut off from others before it ends"
    assert httpx.get(f"http://{HOST}:{pod.inbound}/", trust_env=False).status_code == 200, (
        "it serves to the end"
    )


def test_the_hook_waits_without_envoys_admin_page(pod: Pod):
    """If the hook failed, the pod would be killed at once."""
    began = time.monotonic()
    with contextlib.closing(socket.create_server((HOST, 0))) as silent:
        subprocess.run(hook(silent.getsockname()[1]), check=True, capture_output=True, timeout=30)
    subprocess.run(hook(1), check=True, capture_output=True, timeout=30)
    assert time.monotonic() - began >= 10


def closes(answers: list[httpx.Response]) -> int:
    return sum(answer.headers.get("connection") == "close" for answer in answers)
