"""The job `exclusive` for tests: without servers, and with messages as `admit` writes them."""

import time
from pathlib import Path
from types import SimpleNamespace

from faust.types import TP
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_contracts import names
from spillway_runtime.status import Status
from spillway_streams.clients.store import Store
from spillway_streams.clients.transport import Start
from spillway_streams.ingest import admission
from spillway_streams.jobs import runner
from spillway_streams.jobs.exclusive import Exclusive
from spillway_streams.process.config import ExclusiveSettings
from spillway_streams.process.counters import Counters

SPANS = TP(names.KAFKA_TOPIC_OTLP_SPANS, 0)
STORE = "clickhouse://localhost"


def payload(number: int) -> bytes:
    """Returns a request of the service `shop` that has just ended. `number`: its span id."""
    found = ExportTraceServiceRequest()
    resource = found.resource_spans.add()
    for key, text in ((names.SPAN_ATTRIBUTE_SERVICE, "shop"), (names.SPAN_ATTRIBUTE_CLUSTER, "c1")):
        resource.resource.attributes.add(key=key).value.string_value = text
    span = resource.scope_spans.add().spans.add(
        trace_id=b"\1" * 16, span_id=number.to_bytes(8, "big"), kind=Span.SPAN_KIND_SERVER
    )
    span.end_time_unix_nano = time.time_ns()
    span.start_time_unix_nano = span.end_time_unix_nano - 1_000_000
    span.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = "shop GET /"
    return found.SerializeToString()


def event(offset: int, at: float, cluster: str | None = "c1") -> SimpleNamespace:
    """Returns a message that `admit` has written for a cluster; None: written by somebody else."""
    message = SimpleNamespace(tp=SPANS, topic=SPANS.topic, partition=0, offset=offset, timestamp=at)
    message.headers = admission.headers(cluster, offset) if cluster else ()
    return SimpleNamespace(message=message, value=payload(offset + 1))


def made(folder: Path, consumer: object, store: Store | None = None, **settings: float) -> Exclusive:
    """Returns the job with one partition, whose log begins at 0."""
    address = {"kafka": "h:1", "health_listen": "h:2", "clickhouse_url": STORE}
    status, counters = Status("kafka", "clickhouse"), Counters()
    store = store or Store(STORE, status, counters)
    found = ExclusiveSettings(**address, **settings, state_dir=folder)
    job = Exclusive(SimpleNamespace(consumer=consumer), runner.Context(found, status, counters, store))
    job.open(SPANS, Start(0, 0, 10, ""))
    return job
