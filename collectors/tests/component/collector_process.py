"""A running collector and its two ends: OTLP in, Kafka out."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
from aiokafka import AIOKafkaConsumer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import WAIT_S
from trace_exports import TRACE_EXPORT

BOX = Path(__file__).resolve().parents[2]
CLUSTER = "cluster-under-test"


@dataclass
class Collector:
    """A collector that its launcher starts.

    Ports and queue stay the same over stop, kill and start.
    """

    server: servers.Server
    ports: dict[str, int]

    @property
    def address(self) -> str:
        """Returns host:port of OTLP over gRPC."""
        return f"127.0.0.1:{self.ports['grpc']}"

    def export_grpc(self, payload: bytes) -> None:
        """Sends raw bytes as one OTLP/gRPC trace export.

        Raises grpc.RpcError when it is refused.
        """
        with grpc.insecure_channel(self.address) as channel:
            channel.unary_unary(TRACE_EXPORT)(payload, timeout=WAIT_S, wait_for_ready=True)

    def export_http(
        self, path: str, payload: bytes, content_type: str = "application/x-protobuf"
    ) -> httpx.Response:
        """Sends raw bytes as one OTLP/HTTP export to /v1/traces or /v1/metrics."""
        url = f"http://127.0.0.1:{self.ports['http']}{path}"
        return httpx.post(url, content=payload, headers={"content-type": content_type}, timeout=WAIT_S)

    def metrics(self) -> str:
        """Returns the collector's own metrics as Prometheus text."""
        return httpx.get(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=WAIT_S).text


def collector(
    folder: Path,
    kafka: str,
    environment: dict[str, str],
    *overrides: str,
    box: Path = BOX,
    pinned: tuple[str, ...] = (),
    **more: str,
) -> Collector:
    """Returns a collector that is not started yet. Its queue and log are in `folder`.

    overrides: settings over config.yaml, in the format of the collector's `yaml:` provider
        ("a::b: value")
    box: the folder of config.yaml and its launcher
    pinned: a command that runs the launcher
    more: environment variables, which override the usual ones
    """
    configuration = (box / "config.yaml", *(f"yaml:{override}" for override in overrides))
    return launched(folder, configuration, environment, {"SPILLWAY_KAFKA": kafka} | more, box, pinned)


def launched(
    folder: Path,
    configuration: tuple[Path | str, ...],
    environment: dict[str, str],
    more: dict[str, str],
    box: Path = BOX,
    pinned: tuple[str, ...] = (),
) -> Collector:
    """Returns a collector of any configuration, with its own ports and folder, not started yet.

    Its variables override those of `environment`; those in `more` override both.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = {name: servers.free_port() for name in ("grpc", "http", "health", "metrics")}
    variables = {
        "SPILLWAY_CLUSTER": CLUSTER,
        "SPILLWAY_OTLP_GRPC_LISTEN": f"127.0.0.1:{ports['grpc']}",
        "SPILLWAY_OTLP_HTTP_LISTEN": f"127.0.0.1:{ports['http']}",
        "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{ports['health']}",
        "SPILLWAY_METRICS_LISTEN": f"127.0.0.1:{ports['metrics']}",
        "SPILLWAY_STATE_DIR": str(folder / "state"),
    }
    server = servers.Server(
        url=f"http://127.0.0.1:{ports['health']}",
        command=[*pinned, str(box / "run"), *(f"--config={source}" for source in configuration)],
        log=folder / "collector.log",
        ready=lambda: servers.healthy(ports["health"]),
        environment=environment | variables | more,
    )
    return Collector(server, ports)


def read_topic(kafka: str, topic: str, enough: Callable[[list], bool], timeout_s: float = WAIT_S) -> list:
    """Reads a topic from its beginning until `enough` holds or the time is over."""
    return asyncio.run(_read(kafka, topic, enough, timeout_s))


async def _read(kafka: str, topic: str, enough: Callable[[list], bool], timeout_s: float) -> list:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    messages, deadline = [], time.monotonic() + timeout_s
    try:
        while not enough(messages) and time.monotonic() < deadline:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                messages.extend(batch)
    finally:
        await consumer.stop()
    return messages


def spans_request(
    trace_ids: list[bytes], spans_per_trace: int = 1, **resource: str
) -> ExportTraceServiceRequest:
    """Returns spans of several traces, mixed in one request as a proxy sends them.

    `resource` gives attributes of the resource. In their keys, `__` stands for a dot.
    """
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    for key, value in resource.items():
        resource_spans.resource.attributes.add(key=key.replace("__", ".")).value.string_value = value
    spans = resource_spans.scope_spans.add().spans
    now = time.time_ns()
    for index in range(spans_per_trace):
        for trace_id in trace_ids:
            span = spans.add(
                trace_id=trace_id, span_id=(index + 1).to_bytes(8, "big"), name=f"span {index}", kind=2
            )
            span.start_time_unix_nano, span.end_time_unix_nano = now, now + 1_000_000
    return request


def gauge_request(name: str, value: float) -> ExportMetricsServiceRequest:
    """Returns a request of one gauge with one data point."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    metric.gauge.data_points.add(time_unix_nano=time.time_ns()).as_double = value
    return request


def span_keys(messages: list) -> list[tuple[bytes, bytes]]:
    """Returns (trace id, span id) of every span in the messages.

    Raises DecodeError when a message is no trace export.
    """
    requests = [ExportTraceServiceRequest.FromString(message.value) for message in messages]
    return [
        (span.trace_id, span.span_id)
        for request in requests
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]
