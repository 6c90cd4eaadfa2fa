"""Wrong data that parts of the stack send, each with the part's own credential."""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import nats
import redis
from aiokafka import AIOKafkaProducer
from clickhouse_driver import Client
from injecting import EAST, WEST
from loop_harness import Loop
from nats.errors import Error as NatsError
from nats.js.api import RawStreamMsg
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_lab.render.pods import HOST
from spillway_streams.ingest import admission

_TTL_FOR_EVER = 2**32 - 1
BACKEND = "backend GET /items/{id}"
GATEWAY = "gateway GET /items/{id}"
_RELAY = names.NATS_USER_RELAY.format(cluster=WEST), names.NATS_INBOX_RELAY.format(cluster=WEST)
_GARBAGE = (b"\xff\xfe no message", b"", b"\x00" * 100_000)


def collector(loop: Loop) -> None:
    """East's sender claims to be west, with durations of an hour in the past and the future."""
    now = time.time_ns()
    ends = [now + (n - 25) * 3600 * 10**9 for n in range(50)]
    _send(loop, EAST, "traces", _spans(WEST, ends, 3600 * 10**9))


def worker(loop: Loop) -> None:
    """A worker of spans writes values that are not batches, and impossible marks."""
    mark = b'[0, 4, 9000000000000000, 1, -1, {"west": 1e308}]'
    headers = [("spillway-source", b"-1"), ("spillway-sequence", b"x"), (names.KAFKA_HEADER_MARK, mark)]
    topics = (
        names.KAFKA_TOPIC_ARRIVALS,
        names.KAFKA_TOPIC_CALLS,
        names.KAFKA_TOPIC_EDGES,
        names.KAFKA_TOPIC_NETWORK,
    )
    _write(loop, [(topic, value, headers) for topic in topics for value in _GARBAGE])


def relay(loop: Loop) -> None:
    """A client with a relay's password reports that all services are gone.

    It does so with an endless lifetime, a time in the future, and another relay's name.
    """

    async def lie(connection: nats.NATS) -> None:
        for name, ttl_s in (("", 10), (f"relay-{WEST}", 10), ("liar", _TTL_FOR_EVER), ("a b", 10)):
            beat = Heartbeat(cluster=WEST, relay=name, ttl_seconds=ttl_s)
            beat.at.FromSeconds(int(time.time()) + 86_400)
            subject = names.NATS_SUBJECT_HEARTBEATS.format(cluster=WEST)
            await connection.publish(subject, beat.SerializeToString())
        await connection.flush()

    _over_nats(loop, *_RELAY, lie)


def kafka(loop: Loop) -> None:
    """West's own topics get garbage, and spans and counters that claim to be east's.

    The claim is in a header and in the payload.
    """
    now = time.time_ns()
    forged = list(admission.headers(EAST, 0))
    spans = _spans(EAST, [now] * 200, 10**6).SerializeToString()
    counters = _totals(EAST, "backend", "east/backend/east-backend-0", {BACKEND: 2**40}, now)
    values = {
        names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS: (*_GARBAGE, spans),
        names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS: (*_GARBAGE, counters.SerializeToString()),
    }
    _write(loop, [(t.format(cluster=WEST), value, forged) for t, found in values.items() for value in found])


def hot_state(loop: Loop) -> None:
    """West's boards get values that are not JSON, numbers, classes or hashes.

    The placement and the rules are invalid too.
    """
    streams, optimizer, publisher = (
        redis.Redis.from_url(loop.stack.redis_url(user)) for user in ("streams", "optimizer", "publisher")
    )
    wrong = {BACKEND: "{", GATEWAY: '{"at": 1e400, "rps": "many"}', "no class": "[]", "gateway GET /": "null"}
    for key in (names.REDIS_KEY_LOAD, names.REDIS_KEY_DEMAND):
        streams.hset(key.format(cluster=WEST), mapping=wrong)
    streams.hset(names.REDIS_KEY_NETWORK, mapping={"west>east": '{"at": NaN}', "nowhere": "1"})
    optimizer.set(names.REDIS_KEY_DEMAND.format(cluster=WEST), "no hash")
    publisher.set(names.REDIS_KEY_PLACEMENT.format(cluster=WEST), "{")
    publisher.set(names.REDIS_KEY_IN_FORCE.format(cluster=WEST), '{"version": "99999999999999999999"}')


def history(loop: Loop) -> None:
    """The newest rows of the model get impossible values: negative, infinite, not a number."""
    client, now = Client.from_url(loop.stack.clickhouse_url("streams")), datetime.now(UTC)
    rows = {
        "capacities (measured_at, cluster, service, capacity_rps)": [
            (now, cluster, "backend", rps)
            for cluster, rps in ((EAST, 1e300), (EAST, math.inf), (WEST, -5.0), (WEST, math.nan))
        ],
        "curves (fitted_at, service, class, a_ms, b_ms, norm_weight)": [
            (now, "backend", BACKEND, math.nan, 1.0, 1.0),
            (now, "backend", BACKEND, -1e300, 1e300, 0.0),
            (now, "backend", BACKEND, math.inf, -math.inf, -1.0),
        ],
        "call_ratios (window_end, source_class, class, calls_per_request)": [
            (now, "frontend GET /items/{id}", BACKEND, calls) for calls in (-1.0, math.inf, 1e300)
        ],
        "network_times (window_end, source_cluster, destination_cluster, mean_ms, samples)": [
            (now, WEST, EAST, mean_ms, 2**63) for mean_ms in (-1e300, math.nan)
        ],
    }
    for table, found in rows.items():
        client.execute(f"INSERT INTO {table} VALUES", found)
    client.disconnect()


def bus(loop: Loop) -> None:
    """A relay and PAPA try to write the bucket of rulesets, which they may not.

    A client with the publisher's password but not its key writes unsigned rules that send all to
    east, rules before the last ones, and a value that is no ruleset.
    """

    async def forge(connection: nats.NATS) -> None:
        key = f"$KV.{names.NATS_BUCKET_RULESETS}.{WEST}"
        await connection.publish(key, _all_to(EAST))
        with contextlib.suppress(NatsError):  # a permission violation is reported later
            await connection.flush()

    async def break_in(connection: nats.NATS) -> None:
        stream, js = f"KV_{names.NATS_BUCKET_RULESETS}", connection.jetstream()
        key = f"$KV.{names.NATS_BUCKET_RULESETS}.{WEST}"
        last = await js.get_last_msg(stream, key)
        old = None
        for sequence in range(last.seq - 1, max(last.seq - 20, 0), -1):
            with contextlib.suppress(NatsError):
                found = await js.get_msg(stream, sequence)
                if found.subject == key:
                    old = found
                    break
        await js.publish(key, _all_to(EAST))
        await js.publish(key, _all_to(EAST), headers=_signature(last))
        await js.publish(key, b"\xff no ruleset")
        if old is not None:
            await js.publish(key, old.data, headers=_signature(old))

    _over_nats(loop, *_RELAY, forge)
    _over_nats(loop, "papa", names.NATS_INBOX_PAPA, forge)
    _over_nats(loop, "publisher", names.NATS_INBOX_PUBLISHER, break_in)


def exports(loop: Loop) -> None:
    """One Envoy's counters are negative, decrease, or are impossibly large.

    They belong to a process that started long ago.
    """
    for count in (-5, 0, 2**62):
        totals = _totals(WEST, "backend", "west/backend/west-backend-0", {BACKEND: count}, time.time_ns())
        _send(loop, WEST, "metrics", totals)


def region(loop: Loop) -> None:
    """East's backend reports hundreds of answers per second, each within 0.1 ms."""
    now = time.time_ns()
    _send(loop, EAST, "traces", _spans(EAST, [now - n * 2 * 10**6 for n in range(400)], 10**5))


def _signature(message: RawStreamMsg) -> dict[str, str]:
    wanted = (names.NATS_HEADER_SIGNATURE, names.NATS_HEADER_KEY_ID)
    return {name: text for name, text in (message.headers or {}).items() if name in wanted}


def _all_to(cluster: str) -> bytes:
    forged = Ruleset(id="forged", version=time.time_ns() // 10**6 + 60_000, policy="spillway")
    rule = forged.rules.add(source_cluster=WEST, source_service="frontend")
    rule.traffic_class.service, rule.traffic_class.method = "backend", "GET"
    rule.traffic_class.path_template = "/items/{id}"
    rule.destinations.add(cluster=cluster, weight=names.VALUE_WEIGHT_TOTAL)
    return forged.SerializeToString()


def _spans(cluster: str, ends: list[int], duration_ns: int) -> ExportTraceServiceRequest:
    """Returns server spans of the backend that no service called."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, value in ((names.SPAN_ATTRIBUTE_CLUSTER, cluster), (names.SPAN_ATTRIBUTE_SERVICE, "backend")):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_spans.add()
    for end in ends:
        span = scope.spans.add(
            trace_id=os.urandom(16), span_id=os.urandom(8), kind=2, name="GET",
            start_time_unix_nano=end - duration_ns, end_time_unix_nano=end,
        )  # fmt: skip
        span.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = BACKEND
    return request


def _totals(
    cluster: str, service: str, instance: str, counts: dict[str, int], now: int
) -> ExportMetricsServiceRequest:
    """Returns the message that one Envoy's filter sends every second."""
    request = ExportMetricsServiceRequest()
    found = request.resource_metrics.add()
    of = {
        names.SPAN_ATTRIBUTE_CLUSTER: cluster,
        names.SPAN_ATTRIBUTE_SERVICE: service,
        names.OTEL_ATTRIBUTE_INSTANCE: instance,
    }
    for key, value in of.items():
        found.resource.attributes.add(key=key).value.string_value = value
    metric = found.scope_metrics.add().metrics.add(name=names.OTEL_METRIC_REQUESTS, unit="{request}")
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True
    for class_id, count in counts.items():
        point = metric.sum.data_points.add(start_time_unix_nano=1, time_unix_nano=now, as_int=count)
        point.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = class_id
        point.attributes.add(key=names.SPAN_ATTRIBUTE_ENTRY).value.bool_value = False
    return request


def _send(
    loop: Loop, cluster: str, signal: str, request: ExportTraceServiceRequest | ExportMetricsServiceRequest
) -> None:
    """Sends a request to a cluster's collector with that cluster's own sender certificate."""
    port = loop.stack.cluster_ports[cluster]["OTLP_HTTP_PORT"]
    httpx.post(
        f"https://{HOST}:{port}/v1/{signal}",
        content=request.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
        verify=loop.sender(cluster),
        trust_env=False,
    ).raise_for_status()


def _write(loop: Loop, messages: list[tuple[str, bytes, list[tuple[str, bytes]]]]) -> None:
    """Writes messages (topic, value, headers) to every partition."""

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=loop.stack.environment["SPILLWAY_KAFKA"])
        await producer.start()
        try:
            for topic, value, headers in messages:
                for partition in await producer.partitions_for(topic):
                    await producer.send(topic, value, partition=partition, headers=headers)
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(write())


def _over_nats(loop: Loop, user: str, inbox: str, act: Callable[[nats.NATS], Awaitable[None]]) -> None:
    async def ignore(_: Exception) -> None:
        """Ignores the error: permission violations are expected."""

    async def speak() -> None:
        connection = await nats.connect(loop.stack.nats_url(user), inbox_prefix=inbox, error_cb=ignore)
        try:
            await act(connection)
        finally:
            await connection.close()

    asyncio.run(speak())
