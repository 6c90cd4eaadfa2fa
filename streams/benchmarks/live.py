"""Makes spans that end now, sends them in two ways, and runs what they pass through."""

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
from aiokafka import AIOKafkaProducer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS
from spillway_lab.testing.servers import ROOT, Server, free_port, healthy, running

CLUSTER = "c-one"
_SERVICES = ("gateway", "catalogue", "cart", "order")
CLASSES = tuple(f"{service} GET /items/{{id}}" for service in _SERVICES)
_BATCH_SPANS = 20
_PERIOD_S = 0.05
RATE_OF_CLASS = _BATCH_SPANS / _PERIOD_S / len(CLASSES)
JOBS = ("admit", "exclusive", "classify", "curves", "graph")
_OF_ALL = {"all": [name.upper() for name in JOBS]}
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Urls(NamedTuple):
    kafka: str
    clickhouse: str
    redis: str


def batch(class_id: str, ended_ns: int) -> bytes:
    """Returns OTLP requests of one service, each a trace of its own.

    All of them ended at `ended_ns` (Unix nanoseconds).
    """
    service = class_id.split(" ", 1)[0]
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(
        _attributes({names.SPAN_ATTRIBUTE_SERVICE: service, names.SPAN_ATTRIBUTE_CLUSTER: CLUSTER})
    )
    resource_spans.scope_spans.add().spans.extend(_span(class_id, ended_ns) for _ in range(_BATCH_SPANS))
    return request.SerializeToString()


def _span(class_id: str, ended_ns: int) -> Span:
    method, template = class_id.split(" ")[1:]
    fields = {
        names.OTEL_ATTRIBUTE_HTTP_METHOD: method,
        names.OTEL_ATTRIBUTE_URL_PATH: template.replace("{id}", str(random.randrange(10**6))),
        names.SPAN_ATTRIBUTE_CLASS: class_id,
        names.OTEL_ATTRIBUTE_HTTP_ROUTE: template,
        names.SPAN_ATTRIBUTE_IN_FLIGHT: 3,
        names.SPAN_ATTRIBUTE_ARRIVAL_RATE: RATE_OF_CLASS,
        names.OTEL_ATTRIBUTE_HTTP_STATUS: 200,
    }
    return Span(
        trace_id=random.randbytes(16),
        span_id=random.randbytes(8),
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=ended_ns - random.randrange(2_000_000, 60_000_000),
        end_time_unix_nano=ended_ns,
        attributes=_attributes(fields),
    )


def _attributes(fields: dict[str, str | int | float]) -> list[KeyValue]:
    kinds = {str: "string_value", int: "int_value", float: "double_value"}
    return [KeyValue(key=k, value=AnyValue(**{kinds[type(v)]: v})) for k, v in fields.items()]


def load(send: Callable[[bytes, int], None], sent: Callable[[str, float], None], seconds: float) -> None:
    """Sends batches of the classes in turn, one every _PERIOD_S.

    `sent` is called with each batch before it is sent.
    """
    began = time.monotonic()
    for n in range(int(seconds / _PERIOD_S)):
        time.sleep(max(began + n * _PERIOD_S - time.monotonic(), 0))
        ended_ns = time.time_ns()
        # Whole microseconds, because tables and boards hold nothing finer.
        ended_ns -= ended_ns % 1000
        sent(CLASSES[n % len(CLASSES)], ended_ns / 1e9)
        send(batch(CLASSES[n % len(CLASSES)], ended_ns), n)


def to_collector(address: str) -> Callable[[bytes, int], None]:
    """Returns a function that sends as a proxy does.

    It uses OTLP over gRPC, and does not wait for the answer before the next batch.
    """
    export = grpc.insecure_channel(address).unary_unary(_EXPORT)
    return lambda payload, _: export.future(payload, timeout=30, wait_for_ready=True)


def to_kafka(kafka: str, stack: ExitStack) -> Callable[[bytes, int], None]:
    """Returns a function that sends as a collector does, but at once.

    It writes to the partitions in turn.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=kafka, compression_type="zstd")
        await producer.start()
        return producer

    producer = asyncio.run_coroutine_threadsafe(start(), loop).result()
    stack.callback(lambda: asyncio.run_coroutine_threadsafe(producer.stop(), loop).result())

    def send(payload: bytes, n: int) -> None:
        topic = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=CLUSTER)
        asyncio.run_coroutine_threadsafe(
            producer.send(topic, payload, partition=n // len(CLASSES) % PARTITIONS), loop
        )

    return send


def make_topics(urls: Urls, clusters: Sequence[str] = (CLUSTER,)) -> None:
    """Creates the topics as in production, before anything reads or writes them."""
    command = [
        sys.executable,
        "-m",
        "spillway_streams",
        "topics",
        "--file",
        str(ROOT / "infra/kafka/topics.yaml"),
    ]
    environment = {"SPILLWAY_KAFKA": urls.kafka, "SPILLWAY_CLUSTERS": ",".join(clusters)}
    subprocess.run(command, env=os.environ | environment, check=True)


@contextmanager
def job(name: str, folder: Path, urls: Urls, clusters: Sequence[str] = (CLUSTER,)) -> Iterator[Server]:
    """Runs a job, or `all` of them in one process, with default settings."""
    port = free_port()
    environment = {f"SPILLWAY_{of}_HEALTH_LISTEN": f"127.0.0.1:{free_port()}" for of in _OF_ALL.get(name, ())}
    environment |= {
        "SPILLWAY_KAFKA": urls.kafka,
        "SPILLWAY_CLICKHOUSE_URL": urls.clickhouse,
        "SPILLWAY_REDIS_URL": urls.redis,
        "SPILLWAY_CLUSTERS": ",".join(clusters),
        "SPILLWAY_STATE_DIR": str(folder / name),
        "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "spillway_streams", name]
    ready = lambda: healthy(port)  # noqa: E731
    with running(
        Server(f"http://127.0.0.1:{port}", command, folder / f"{name}.log", ready, environment)
    ) as found:
        yield found


@contextmanager
def collector(folder: Path, kafka: str) -> Iterator[str]:
    """Runs a gateway with the configuration of production. Yields its OTLP/gRPC address."""
    ports = {name: free_port() for name in ("OTLP_GRPC", "OTLP_HTTP", "HEALTH")}
    environment = {f"SPILLWAY_{name}_LISTEN": f"127.0.0.1:{port}" for name, port in ports.items()}
    environment |= {
        "SPILLWAY_CLUSTER": CLUSTER,
        "SPILLWAY_KAFKA": kafka,
        "SPILLWAY_STATE_DIR": str(folder / "collector"),
        "PATH": f"{ROOT / '.spillway' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    ready = lambda: healthy(ports["HEALTH"])  # noqa: E731
    command = [str(ROOT / "collectors" / "run")]
    with running(Server("", command, folder / "collector.log", ready, environment)):
        yield f"127.0.0.1:{ports['OTLP_GRPC']}"
