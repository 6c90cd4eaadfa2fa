"""Two real emulators, of which one calls the other without proxies: queues, failures and load."""

import contextlib
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from itertools import pairwise
from pathlib import Path

import grpc
import httpx
import lab_processes as lab
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from spillway_contracts import names
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.load import load
from spillway_lab.load.background import Background
from spillway_lab.load.samples import REMOTE, concatenate, summarise
from spillway_lab.testing.waiting import WAIT_S, eventually

pytestmark = pytest.mark.component

APPLICATION = """
call_timeout_ms: 3000
services:
  front:
    workers: 64
    queue: 1000
    queue_timeout_ms: 3000
    endpoints:
      - method: GET
        path: /x/{id}
        service_time: {distribution: constant, mean_ms: 1}
        response_bytes: 100
        calls: [[{service: back, method: GET, path: "/y/{id}"}]]
  back:
    workers: 2
    queue: QUEUE
    queue_timeout_ms: 2000
    endpoints:
      - method: GET
        path: /y/{id}
        service_time: {distribution: constant, mean_ms: 100}
        response_bytes: 2000
"""


# Figures of `back`: each request holds one of two workers for 100 ms, so it serves 20 per second.
WORKERS, SERVICE_S = 2, 0.1


@pytest.fixture
def queue() -> int:
    """Number of requests that may wait at `back`.

    It covers all that a test sends, in case the machine pauses.
    """
    return 100


@pytest.fixture
def application(tmp_path: Path, queue: int) -> Path:
    path = tmp_path / "application.yaml"
    path.write_text(APPLICATION.replace("QUEUE", str(queue)))
    return path


@pytest.fixture
def pods(application: Path, tmp_path: Path):
    """Runs `front` in one cluster. Its outbound calls go directly to `back` in another cluster."""
    nowhere = "127.0.0.1:1"
    with lab.pod(lab.environment(application, "here", "back", nowhere), tmp_path / "back.log") as back:
        # `front` calls GET /y/{id} at back's own listener.
        env = lab.environment(application, "there", "front", back.address)
        with lab.pod(env, tmp_path / "front.log") as front:
            yield front, back


def attack(front, tmp_path: Path, rps: float, seconds: float, warm_up_s: float = 0):
    target = f'{{"method": "GET", "url": "http://{front.address}/x/7"}}'
    generator = load.Generator(tmp_path / "load", lab.program("vegeta"))
    seen = []
    found = load.run([load.Attack("there", [target], rps, seconds)], generator, "t", warm_up_s, seen.append)
    assert seen[-1].elapsed_s == seen[-1].total_s
    return found["there"]


def test_below_capacity_every_request_succeeds(pods, tmp_path: Path) -> None:
    """At half the callee's capacity no request fails and latency is near the service times.

    Every answer shows that its request went to the other cluster.
    """
    front, back = pods
    samples = attack(front, tmp_path, rps=10, seconds=3)
    summary = summarise(samples)
    assert (summary.requests, summary.failed, summary.unknown_way) == (30, 0, 0)
    assert samples.latency_ms.min() > 1000 * SERVICE_S
    # About 101 is expected: twice the service time, or seconds instead of milliseconds, is far off.
    assert summary.p50_ms < 1000
    assert (samples.remote == REMOTE).all()
    assert back.counts()["served"] == 30


@pytest.mark.parametrize("queue", [4])
def test_overload_is_bounded_and_accounted_for(pods, tmp_path: Path) -> None:
    """At twice the capacity, requests that do not fit into the queue are refused at once.

    The callee serves no more than its capacity. Client, caller and callee count the same outcomes.
    """
    front, back = pods
    samples = attack(front, tmp_path, rps=40, seconds=4)
    summary, callee, caller = summarise(samples), back.counts(), front.counts()
    assert summary.requests == 160
    lasted_s = (samples.at_s + samples.latency_ms / 1000).max() - samples.at_s.min()
    # Each worker starts a request only when its previous one has ended. The lower bound is half of
    # that, for a machine that pauses.
    assert 40 <= callee["served"] <= WORKERS * (lasted_s / SERVICE_S + 1)
    assert summary.requests - summary.failed == callee["served"] == caller["served"]
    assert summary.failed == callee["queue_full"] == caller["call_failed"] > 0
    # No request waited until its queue timeout, as all would in a long queue.
    assert summary.reasons == {"503 queue_full": summary.failed}


def test_warm_up_is_cut_from_what_is_measured(pods, tmp_path: Path) -> None:
    """Of three seconds with one second of warm-up, only the later two are returned."""
    front, back = pods
    began = time.time()
    samples = attack(front, tmp_path, rps=10, seconds=3, warm_up_s=1)
    assert back.counts()["served"] == 30
    assert 10 <= len(samples) < 30  # 20 when the machine sends each request on time
    assert samples.at_s.min() >= began + 1


def test_callee_killed_then_back(application: Path, tmp_path: Path) -> None:
    """Without the callee requests fail and count as 502. After its restart they succeed again."""
    env = lab.environment(application, "here", "back", "127.0.0.1:1")
    with lab.pod(
        lab.environment(application, "here", "front", env["LAB_LISTEN"]), tmp_path / "front.log"
    ) as front:
        with lab.pod(env, tmp_path / "back.log"):
            assert httpx.get(f"http://{front.address}/x/1").status_code == 200
        gone = httpx.get(f"http://{front.address}/x/1")
        assert (gone.status_code, gone.headers["x-lab-path"]) == (502, "front@here")
        assert gone.headers["x-lab-reason"].startswith("back: transport")
        with lab.pod(env, tmp_path / "back.log"):
            answer = httpx.get(f"http://{front.address}/x/1")
            assert (answer.status_code, answer.headers["x-lab-path"]) == (200, "front@here,back@here")
        assert front.counts()["call_failed"] == 1


def test_an_experiment_changes_a_running_pod(pods) -> None:
    """A patch of the callee's state decides the next answers, and a wrong patch changes nothing."""
    front, back = pods
    state = f"http://{back.health}/state"
    first = httpx.get(state).json()
    assert first == {
        "speed": 1, "workers": 2, "error_rate": 0, "available": True, "delay_ms": 0, "delay_share": 1,
    }  # fmt: skip
    for patch, status, reason in (
        ({"available": False}, 502, "back: 503 unavailable"),
        ({"available": True, "error_rate": 1}, 502, "back: 500 injected_error"),
        ({"error_rate": 0, "speed": 10, "workers": 8}, 200, None),
    ):
        assert httpx.patch(state, json=patch).json() == httpx.get(state).json()
        answer = httpx.get(f"http://{front.address}/x/1")
        assert (answer.status_code, answer.headers.get("x-lab-reason")) == (status, reason)
    refused = httpx.patch(state, json={"speed": 0, "workers": 1})
    assert (refused.status_code, refused.json()) == (
        400,
        {"problems": ["speed: 0; allowed: a number above 0"]},
    )
    assert httpx.get(state).json() == first | {"speed": 10, "workers": 8}
    counts = back.counts()
    assert (counts["unavailable"], counts["injected_error"], counts["served"]) == (1, 1, 1)


def test_refuses_to_start_without_identity(application: Path) -> None:
    """Every missing or wrong variable is listed. Exit code 64 means a configuration error."""
    env = lab.environment(application, "here", "nobody", "127.0.0.1:1") | {
        "SPILLWAY_CLUSTER": "",
        "LAB_LISTEN": "x",
    }
    done = subprocess.run([lab.emulator()], env=os.environ | env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 64
    assert "SPILLWAY_CLUSTER: not set; it has no default" in done.stderr
    assert 'LAB_LISTEN: "x"' in done.stderr
    assert 'SPILLWAY_SERVICE: unknown service "nobody"; allowed: back, front' in done.stderr


class _Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps the requests that it receives."""

    def __init__(self) -> None:
        self.requests: list = []

    def Export(self, request, context):
        self.requests.append(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def collector(port: int, held: Path | None = None) -> tuple[grpc.Server, _Collector]:
    """Starts a collector, in cleartext or with mutual TLS from the files of a keystore folder."""
    kept, server = _Collector(), grpc.server(futures.ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(kept, server)
    address = f"127.0.0.1:{port}"
    if held is None:
        assert server.add_insecure_port(address) == port
    else:
        key, certificate, trust = ((held / name).read_bytes() for name in ("tls.key", "tls.crt", "ca.crt"))
        credentials = grpc.ssl_server_credentials([(key, certificate)], trust, require_client_auth=True)
        assert server.add_secure_port(address, credentials) == port
    server.start()
    return server, kept


def readings(kept: _Collector) -> list[tuple[dict[str, str], str, float]]:
    """Returns (resource attributes, metric, value) of every point received."""
    return [
        ({a.key: a.value.string_value for a in group.resource.attributes}, metric.name, point.as_double)
        for request in kept.requests
        for group in request.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    ]


@contextlib.contextmanager
def busy(pod, clients: int) -> Iterator[None]:
    """Runs `clients` clients while the block runs. Each sends one request after the other."""
    over = threading.Event()

    def client() -> None:
        with httpx.Client(base_url=f"http://{pod.address}", timeout=WAIT_S, verify=False) as connection:
            while not over.is_set():
                connection.get("/y/1")

    with futures.ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client) for _ in range(clients)]
        try:
            yield
        finally:
            over.set()
        for task in running:
            task.result()


def test_busy_share_reaches_a_collector_that_was_away(application: Path, tmp_path: Path) -> None:
    """Without a collector the emulator serves requests as usual.

    When a collector appears, it gets the pool's busy share under the agreed name and identity. The
    share follows the load.
    """
    port, log = lab.free_port(), tmp_path / "back.log"
    env = lab.environment(application, "here", "back", "127.0.0.1:1", f"127.0.0.1:{port}")
    with lab.pod(env, log) as back:
        eventually(lambda: "collector away" in log.read_text(), "the collector's absence is logged")
        with lab.hanging_up(port) as attempts:
            eventually(lambda: len(attempts) >= 4, "more readings that nobody takes")
        assert httpx.get(f"http://{back.address}/y/1").status_code == 200
        server, kept = collector(port)
        try:
            eventually(lambda: "collector back" in log.read_text(), "the collector's return is logged")
            eventually(lambda: any(value < 0.1 for *_, value in readings(kept)), "an idle pool's reading")
            # Two are served and the others wait: the pool is never idle, however slow clients are.
            with busy(back, clients=20):
                eventually(lambda: any(value > 0.8 for *_, value in readings(kept)), "a busy pool's reading")
        finally:
            server.stop(None)
    attributes, metric, _ = readings(kept)[0]
    assert metric == names.OTEL_METRIC_CPU_LIMIT_UTILIZATION
    assert attributes == {
        names.SPAN_ATTRIBUTE_SERVICE: "back",
        names.SPAN_ATTRIBUTE_CLUSTER: "here",
        "k8s.pod.name": "here-back-0",
    }
    assert all(0 <= value <= 1 for *_, value in readings(kept))
    changes = re.findall("collector (away|back)", log.read_text())
    # One line is logged per change, so two lines in a row never say the same.
    assert all(first != second for first, second in pairwise(["back", *changes])), changes


def test_readings_go_by_mutual_tls_and_renewed_files_are_taken_up(application: Path, tmp_path: Path) -> None:
    """A collector of another cluster gets no readings, and the cluster's own collector does.

    This still holds after another authority has reissued all files while the pod runs.
    """
    store, port, log = Keystore(tmp_path / "tls"), lab.free_port(), tmp_path / "back.log"
    here = certificates.pod("here-back-0", "here", "back")
    hosts = ("127.0.0.1",)
    store.issue([here, certificates.collector("here", hosts), certificates.collector("there", hosts)])
    env = lab.environment(application, "here", "back", "127.0.0.1:1", f"127.0.0.1:{port}")
    for name, file in (("CA", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key")):
        env[f"SPILLWAY_COLLECTOR_{name}"] = str(store.folder / here.name / file)
    server, refused = collector(port, store.folder / "collector-there")
    with lab.pod(env, log):
        try:
            eventually(lambda: "unknown authority" in log.read_text(), "the pod refuses another's collector")
        finally:
            server.stop(None).wait()
        for _ in range(2):
            server, kept = collector(port, store.folder / "collector-here")
            try:
                eventually(lambda kept=kept: readings(kept), "readings arrive")
            finally:
                server.stop(None).wait()
            (store.authority("here") / "ca.crt").unlink()
            store.renew()
    assert not readings(refused)


def test_certificate_files_go_together(application: Path) -> None:
    """Each missing or wrong file is named by its variable, and the exit code is 64."""
    env = lab.environment(application, "here", "back", "127.0.0.1:1")
    for given, expected in (
        ({"CA": str(application)}, ["SPILLWAY_COLLECTOR_CERT: not set", "SPILLWAY_COLLECTOR_KEY: not set"]),
        (dict.fromkeys(("CA", "CERT", "KEY"), str(application)), ["SPILLWAY_COLLECTOR_CA: "]),
    ):
        more = {f"SPILLWAY_COLLECTOR_{name}": value for name, value in given.items()}
        done = subprocess.run(
            [lab.emulator()], env=os.environ | env | more, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 64
        lines = done.stderr.splitlines()
        assert len(lines) == len(expected) and all(
            text in line for text, line in zip(expected, lines, strict=True)
        )


def test_load_in_the_background_is_one_run_of_the_generator(pods, tmp_path: Path) -> None:
    """It lasts longer than its least time, until the end of the block. A second run would begin
    with a pause, which is a fall of the load.
    """
    front, _ = pods
    target = f'{{"method": "GET", "url": "http://{front.address}/x/7"}}'
    generator = load.Generator(tmp_path / "load", lab.program("vegeta"), sent_at_least=0.5)
    with Background([load.Attack("here", [target], 20, 1)], generator, "t", 60) as background:
        time.sleep(3)
    found = background.parts()["here"]
    assert found.ok.all()
    assert found.at_s.max() - found.at_s.min() > 1.5
    assert len(list((tmp_path / "load").glob("*.bin"))) == 1


def test_both_clusters_at_once(pods, tmp_path: Path) -> None:
    """Two attacks run in parallel, each with its own samples."""
    front, _ = pods
    target = f'{{"method": "GET", "url": "http://{front.address}/x/7"}}'
    generator = load.Generator(tmp_path / "load", lab.program("vegeta"))
    found = load.run([load.Attack(name, [target], 5, 2) for name in ("here", "there")], generator, "t")
    assert {name: len(samples) for name, samples in found.items()} == {"here": 10, "there": 10}
    here, there = (found[name].at_s for name in ("here", "there"))
    assert max(here.min(), there.min()) < min(here.max(), there.max()), "one ended before the other began"
    assert not math.isnan(summarise(concatenate(found.values())).mean_ms)
