"""The whole hot path, from spans that end now to the boards in Redis.

The spans pass exclusive, the topic spillway_arrivals, and curves and graph.
"""

import itertools
import time
from collections.abc import Callable

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from redis import Redis
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, UnknownEntry
from spillway_lab.testing.waiting import eventually
from spillway_native import partition_of

CLUSTER, SHOP, STOCK, IDLE = "hot-path", "hotshop", "hotstock", "hotidle"
HOLD_S = 8
ENTRY, INNER = f"{SHOP} GET /carts/{{id}}", f"{STOCK} GET /levels"
IN_FLIGHT, SHOP_MS, STOCK_MS = 3, 8, 2


def _span(
    found: ExportTraceServiceRequest, service: str, class_id: str, trace: bytes, parent: bytes, ms: int
) -> Span:
    """Adds a server span of the cluster that ends now, and returns it."""
    resource = found.resource_spans.add()
    for key, text in ((names.SPAN_ATTRIBUTE_SERVICE, service), (names.SPAN_ATTRIBUTE_CLUSTER, CLUSTER)):
        resource.resource.attributes.add(key=key).value.string_value = text
    span = resource.scope_spans.add().spans.add(
        trace_id=trace, span_id=trace[:7] + bytes([ms]), parent_span_id=parent, kind=Span.SPAN_KIND_SERVER
    )
    span.end_time_unix_nano = time.time_ns()
    span.start_time_unix_nano = span.end_time_unix_nano - ms * 1_000_000
    span.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = class_id
    span.attributes.add(key=names.SPAN_ATTRIBUTE_IN_FLIGHT).value.int_value = IN_FLIGHT
    span.attributes.add(key=names.SPAN_ATTRIBUTE_ARRIVAL_RATE).value.double_value = 0.0
    if parent:
        span.attributes.add(key=names.SPAN_ATTRIBUTE_SOURCE_SERVICE).value.string_value = SHOP
    return span


def _request(number: int) -> bytes:
    """Returns a request to the shop, which calls the stock once."""
    found, trace = ExportTraceServiceRequest(), b"hotpath" + number.to_bytes(9, "little")
    entry = _span(found, SHOP, ENTRY, trace[::-1], b"", SHOP_MS)
    _span(found, STOCK, INNER, trace[::-1], entry.span_id, STOCK_MS)
    return found.SerializeToString()


def test_what_ends_now_is_on_the_boards(jobs, send, redis_url):
    """The boards show load and demand, and later what is unknown.

    The load board has each class with its rate, latency and requests in flight. The demand board
    has the classes that no service of the mesh called, with the same rate. Spans that have just
    ended are sent until they appear. Then the cluster falls silent, the counters of one Envoy
    arrive, and the worker is killed. Services without telemetry are unknown and keep their last
    values as long as the placement lists them.
    """
    times = {"SPILLWAY_STREAMS_UNKNOWN_AFTER_S": "3", "SPILLWAY_STREAMS_UNKNOWN_HOLD_S": str(HOLD_S)}
    redis, numbers = Redis.from_url(redis_url, decode_responses=True), itertools.count()
    heartbeat = Heartbeat(cluster=CLUSTER)
    for service in (SHOP, STOCK, IDLE):
        heartbeat.services.add(service=service, connected_envoys=1)
    redis.set(names.REDIS_KEY_PLACEMENT.format(cluster=CLUSTER), json_format.MessageToJson(heartbeat))
    running = {name: jobs(name, **times) for name in ("exclusive", "curves", "graph")}

    def shown() -> bool:
        send(names.KAFKA_TOPIC_OTLP_SPANS, [_request(next(numbers)) for _ in range(5)])
        load = redis.hgetall(names.REDIS_KEY_LOAD.format(cluster=CLUSTER))
        demand = redis.hgetall(names.REDIS_KEY_DEMAND.format(cluster=CLUSTER))
        if set(load) != {ENTRY, INNER} or set(demand) != {ENTRY}:
            return False
        shop, stock = (LoadBoardEntry.from_json(load[name]) for name in (ENTRY, INNER))
        asked = DemandEntry.from_json(demand[ENTRY])
        if not (shop.rps > 0 and stock.rps > 0 and asked.rps > 0):
            return False
        assert (shop.duration_ms, stock.duration_ms, asked.duration_ms) == (SHOP_MS, STOCK_MS, SHOP_MS)
        assert shop.in_flight == stock.in_flight == IN_FLIGHT
        assert shop.failed_share == asked.failed_share == 0
        assert 0 < shop.at <= time.time() and asked.at <= time.time()
        if _said(redis) != dict.fromkeys((SHOP, STOCK, IDLE), ""):
            return False
        return shop.rps == stock.rps  # they are in two partitions, and one may be a message ahead

    eventually(
        shown,
        "both classes on the load board, the entry on the demand board",
        seen=lambda: ({name: job.state() for name, job in running.items()}, redis.keys("*")),
    )
    assert not running["exclusive"].counters().get("arrivals_dropped", 0)
    _silence_is_unknown(redis)
    _counters_are_known(
        redis,
        lambda payload, partition: send(names.KAFKA_TOPIC_OTLP_METRICS, [payload], partition),
        running["graph"].counters,
    )
    running["exclusive"].process.kill()
    eventually(
        lambda: "not read" in _unknown(redis).get(STOCK, ""),
        "the stock unknown",
        seen=lambda: _unknown(redis),
    )


def _unknown(redis: Redis) -> dict[str, str]:
    """Returns the unknown services with their reasons."""
    return {service: reason for service, reason in _said(redis).items() if reason}


def _said(redis: Redis) -> dict[str, str]:
    """Returns the reason for every service on the board of unknown services; "" if it is known."""
    found = redis.hgetall(names.REDIS_KEY_UNKNOWN.format(cluster=CLUSTER))
    return {field: UnknownEntry.from_json(text).reason for field, text in found.items()}


def _demand(redis: Redis) -> DemandEntry | None:
    text = redis.hget(names.REDIS_KEY_DEMAND.format(cluster=CLUSTER), ENTRY)
    return DemandEntry.from_json(text) if text else None


def _silence_is_unknown(redis: Redis) -> None:
    """Checks that the cluster becomes unknown when spans stop, as when the collector stops.

    Its entries stay as they were.
    """
    eventually(
        lambda: all("no spans" in _unknown(redis).get(service, "") for service in (SHOP, STOCK, IDLE)),
        "all services of the cluster unknown",
        seen=lambda: _unknown(redis),
    )
    before = _demand(redis)
    assert before and before.rps > 0 and time.time() - before.at > 3
    time.sleep(HOLD_S + 3.0)
    assert _demand(redis) == before and _unknown(redis).keys() == {SHOP, STOCK, IDLE}


def _counters_are_known(
    redis: Redis, send: Callable[[bytes, int], object], counters: Callable[[], object]
) -> None:
    """Checks that an Envoy's counters are enough to know a service.

    The shop's Envoy counts seven requests per second at the entry, although no span arrives. That
    rate is the entry's demand, and the shop is no longer unknown. The stock has no counters and
    remains unknown.
    """
    began, count = time.time_ns(), itertools.count(0, 7)

    def shown() -> bool:
        send(_totals(began, next(count)), partition_of(SHOP, 4))
        time.sleep(1.0)
        found = _demand(redis)
        return bool(
            found and found.rps == pytest.approx(7, rel=0.25) and set(_unknown(redis)) == {STOCK, IDLE}
        )

    eventually(shown, "counted demand", seen=lambda: (_demand(redis), _unknown(redis), counters()))


def _totals(began: int, count: int) -> bytes:
    """Returns an OTLP export with the counter of one Envoy of the shop."""
    found = ExportMetricsServiceRequest()
    of = found.resource_metrics.add()
    texts = {
        names.SPAN_ATTRIBUTE_SERVICE: SHOP, names.SPAN_ATTRIBUTE_CLUSTER: CLUSTER, names.OTEL_ATTRIBUTE_INSTANCE: "one",
    }  # fmt: skip
    for key, text in texts.items():
        of.resource.attributes.add(key=key).value.string_value = text
    metric = of.scope_metrics.add().metrics.add(name=names.OTEL_METRIC_REQUESTS)
    point = metric.sum.data_points.add(
        start_time_unix_nano=began, time_unix_nano=time.time_ns(), as_int=count
    )
    point.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = ENTRY
    point.attributes.add(key=names.SPAN_ATTRIBUTE_ENTRY).value.bool_value = True
    return found.SerializeToString()
