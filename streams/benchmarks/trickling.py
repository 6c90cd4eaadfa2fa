"""The messages of two clusters with little traffic, sent when collectors would send them."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import spans
from aiokafka import AIOKafkaProducer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names
from spillway_native import partition_of
from templates import Visit

CLUSTERS = ("west", "east")
PARTITIONS = 2  # infra/kafka/topics.yaml
_PATH = "/items/{id}"
_SERVICES = ("gateway", "frontend", "backend")
_CHAIN = Visit("gateway", "GET", _PATH, (Visit("frontend", "GET", _PATH, (Visit("backend", "GET", _PATH),)),))
_REQUEST_SPANS = 5  # one of the entry, and two of each call
_MESSAGE_S = 0.1  # a collector sends ten messages a second to each partition
_AHEAD_S = 2.0  # making the spans takes less


def rps(spans_per_s: float) -> float:
    """Returns the requests per second of each service in each cluster."""
    return spans_per_s / len(CLUSTERS) / _REQUEST_SPANS


class Due(NamedTuple):
    """A message, and when it is due (Unix seconds)."""

    at: float
    topic: str
    partition: int
    value: bytes


def spans_of(spans_per_s: float, seconds: float) -> list[Due]:
    """Returns the messages of spans of the next seconds, at a steady rate of both clusters."""
    rate = spans_per_s / len(CLUSTERS) / PARTITIONS
    began_us, found = int((time.time() + _AHEAD_S) * 1e6), []
    for n, (cluster, partition) in enumerate(itertools.product(CLUSTERS, range(PARTITIONS))):
        topic = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=cluster)
        shop = spans.Shop(1, (_CHAIN,), (cluster,))
        log = spans.Partition(shop, n, began_us, rate, max(round(rate * _MESSAGE_S), 1))
        found += [
            Due((began_us + message.at_us) / 1e6, topic, partition, message.value)
            for message in log.messages(int(rate * seconds))
        ]
    return sorted(found)


class Counters:
    """The counters of one Envoy of each service: one message of each a second, for ever."""

    def __init__(self, spans_per_s: float) -> None:
        self._rps, self._start_ns = rps(spans_per_s), time.time_ns()
        self._requests_from: float | None = None

    def begin(self) -> None:
        """Lets the requests begin with the spans of `spans_of`, which is called now."""
        self._requests_from = time.time() + _AHEAD_S

    def __iter__(self) -> Iterator[Due]:
        places = list(itertools.product(CLUSTERS, _SERVICES))
        for n in itertools.count():
            cluster, service = places[n % len(places)]
            at = self._start_ns / 1e9 + n / len(places)
            topic = names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS.format(cluster=cluster)
            yield Due(at, topic, partition_of(service, PARTITIONS), self._report(cluster, service, at))

    def _report(self, cluster: str, service: str, at: float) -> bytes:
        found = ExportMetricsServiceRequest()
        of = found.resource_metrics.add()
        texts = {
            names.SPAN_ATTRIBUTE_SERVICE: service,
            names.SPAN_ATTRIBUTE_CLUSTER: cluster,
            names.OTEL_ATTRIBUTE_INSTANCE: f"{service}-1",
        }
        for key, text in texts.items():
            of.resource.attributes.add(key=key).value.string_value = text
        metrics, times = of.scope_metrics.add().metrics, (self._start_ns, int(at * 1e9))
        _add(metrics.add(name=names.OTEL_METRIC_SPANS), times, 0)
        if self._requests_from is not None and at > self._requests_from:
            count = int((at - self._requests_from) * self._rps)
            point = _add(metrics.add(name=names.OTEL_METRIC_REQUESTS), times, count)
            class_id = f"{service} GET {_PATH}"
            point.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = class_id
            point.attributes.add(key=names.SPAN_ATTRIBUTE_ENTRY).value.bool_value = service == _SERVICES[0]
        return found.SerializeToString()


def _add(metric, times: tuple[int, int], count: int):
    return metric.sum.data_points.add(start_time_unix_nano=times[0], time_unix_nano=times[1], as_int=count)


@contextmanager
def sending(kafka: str, messages: Iterable[Due]) -> Iterator[None]:
    """Sends messages when they are due, from a thread, until the block ends."""
    over, loop = threading.Event(), asyncio.new_event_loop()

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka, compression_type="zstd") as producer:
            for message in messages:
                await asyncio.sleep(message.at - time.time())
                if over.is_set():
                    break
                await producer.send(message.topic, message.value, partition=message.partition)

    sender = threading.Thread(target=lambda: loop.run_until_complete(send()), daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        loop.close()
