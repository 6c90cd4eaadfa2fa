"""The path of a Kubernetes service's CPU use: kubelet, agent, gateway over TLS, Kafka, streams."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from spillway_contracts import names
from spillway_lab.testing.kafka import kafka_server
from spillway_streams.load import cpu
from spillway_streams.process.counters import Counters

COLLECTORS = Path(__file__).resolve().parents[2] / "collectors" / "tests"
sys.path.insert(0, str(COLLECTORS / "component"))

from agent_process import agent  # noqa: E402
from collector_process import CLUSTER, collector  # noqa: E402
from fake_kubelet import FakeKubelet  # noqa: E402
from spillway_lab.testing.tls_files import tls_files  # noqa: E402

BIN = COLLECTORS.parents[1] / ".spillway" / "bin"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")} | {
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"
}
pytestmark = [pytest.mark.component, pytest.mark.timeout(400)]


async def points(kafka: str, count: int, timeout_s: float = 60.0) -> list[cpu.Point]:
    """Returns at least `count` points that streams' decoder makes of the gateway's metrics.

    Returns fewer after `timeout_s` seconds.
    """
    topic = names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS.format(cluster=CLUSTER)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest")
    await consumer.start()
    counters, found, deadline = Counters(), [], time.monotonic() + timeout_s
    try:
        while len(found) < count and time.monotonic() < deadline:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                for message in messages:
                    found += cpu.decode(message.value, counters)
    finally:
        await consumer.stop()
    return found


def test_the_kubelets_reading_becomes_a_row_of_cpu(tmp_path):
    """A container at half of its limit gives a point of 0.5 with its service, pod and cluster.

    The node's other pods (without a service or a limit) and the sidecar give none. A rotated token
    is picked up.
    """
    tls = tls_files(tmp_path / "tls")
    served = {"SPILLWAY_OTLP_TLS_CERT": str(tls.certificate), "SPILLWAY_OTLP_TLS_KEY": str(tls.key)}
    with kafka_server(tmp_path) as kafka, FakeKubelet(tls, tmp_path) as kubelet:
        gateway = collector(tmp_path / "gateway", kafka, ENVIRONMENT | served)
        node = agent(
            tmp_path / "agent",
            f"https://{gateway.address}",
            ENVIRONMENT,
            "receivers::kubelet_cpu::collection_interval: 500ms",
            SPILLWAY_GATEWAY_CA=str(tls.ca),
            SPILLWAY_KUBELET=kubelet.address,
            SPILLWAY_KUBELET_CA=str(tls.ca),
            SPILLWAY_KUBELET_TOKEN_FILE=str(kubelet.token_file),
            SPILLWAY_SERVICE_LABEL="app",
        )
        try:
            gateway.server.start()
            node.server.start()
            before = asyncio.run(points(kafka, 2))
            kubelet.rotate()
            taken = kubelet.answers["/pods", 200]
            after = asyncio.run(points(kafka, len(before) + 4))
        finally:
            node.server.stop()
            gateway.server.stop()
    assert kubelet.answers["/pods", 200] > taken
    assert len(before) >= 2 and len(after) >= len(before) + 4
    assert {point._replace(at=0) for point in after} == {
        cpu.Point(0, CLUSTER, "cart", "cart-5d9c7b6f4-x2x8v", 0.5)
    }
    assert all(abs(point.at - time.time()) < 120 for point in after)
