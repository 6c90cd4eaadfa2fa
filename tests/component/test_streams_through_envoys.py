"""Duration limits of requests between two real Envoys that a real relay serves.

SPILLWAY_TEST_STREAM_SECONDS sets the length of the long stream. The default of 17 s exceeds the 15
s to which every route was once limited.
"""

import concurrent.futures
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from mesh_of_two import Mesh, status
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.testing.servers import running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component
STREAM_S = float(os.environ.get("SPILLWAY_TEST_STREAM_SECONDS", "17"))


@contextlib.contextmanager
def gate(folder: Path, **service: object) -> Iterator[Pod]:
    """Yields the pod that calls cart. The topology declares cart with the fields of `service`."""
    mesh = Mesh(folder)
    caller, callee = mesh.pod("gate"), mesh.pod("cart")
    try:
        with (
            running(mesh.relay([callee], **service)),
            running(mesh.envoy(callee)),
            running(mesh.envoy(caller)),
        ):
            eventually(lambda: status(caller.outbound_port, "/", "cart") == 200, "routes to cart")
            yield caller
    finally:
        mesh.close()


def ask(pod: Pod, path: str, **headers: str) -> tuple[int, str, float]:
    """Returns status, body and seconds. The status is 0 when the answer was cut."""
    begin = time.monotonic()
    try:
        got = httpx.get(
            f"http://{HOST}:{pod.outbound_port}{path}", headers={"host": "cart", **headers},
            trust_env=False, timeout=STREAM_S + 60,
        )  # fmt: skip
        return got.status_code, got.text, time.monotonic() - begin
    except httpx.RemoteProtocolError:
        return 0, "", time.monotonic() - begin


def test_a_stream_lasts_as_long_as_it_likes(tmp_path: Path):
    """The answer begins at once and ends after a silence, through both Envoys.

    Meanwhile the deadline of a gRPC client is enforced.
    """
    with gate(tmp_path) as pod, concurrent.futures.ThreadPoolExecutor() as threads:
        stream = threads.submit(ask, pod, f"/stream/{STREAM_S}")
        grpc = {"content-type": "application/grpc", "grpc-timeout": "500m", "te": "trailers"}
        rpc = threads.submit(ask, pod, "/stream/30", **grpc)
        code, _, took = rpc.result()
        assert took < 25, f"{code} after {took:.1f} s"
        code, text, took = stream.result()
    assert (code, text) == (200, "ab"), f"cut after {took:.1f} s"
    assert took >= STREAM_S


def test_a_service_may_limit_its_requests(tmp_path: Path):
    """The topology limits cart to 4 s in total and 1 s without a byte."""
    with gate(tmp_path, timeouts={"request": "4s", "idle": "1s"}) as pod:
        code, text, took = ask(pod, "/stream/0.2")
        assert (code, text) == (200, "ab"), f"{code} after {took:.1f} s"
        code, _, took = ask(pod, "/stream/30")
        assert code == 0, f"{code} after {took:.1f} s"
        assert took < 25
