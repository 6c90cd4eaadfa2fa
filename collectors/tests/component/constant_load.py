"""A constant load of spans with unique ids, and the outcome of each span.

A span is accepted when its export was answered OK and the answer's partial_success rejects nothing.
Spans that were refused or never answered are not sent again here, so they may be in Kafka or not.
"""

import asyncio
import itertools
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import grpc
from aiokafka import AIOKafkaConsumer
from collector_process import CLUSTER
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from spillway_contracts import names
from spillway_lab.testing.waiting import WAIT_S, eventually
from trace_exports import OWN_CONNECTION, TRACE_EXPORT

CONNECTIONS, SPANS, EXPORTS_PER_S = 4, 40, 15  # per connection: 2 400 spans/s in all
# a killed collector is back at once
OPTIONS = [OWN_CONNECTION, ("grpc.max_reconnect_backoff_ms", 200)]
EXPORT_S = 30.0  # far longer than a busy machine needs: an export that hangs is a finding
NO_CONNECTION = "failed to connect to all addresses"  # gRPC's message for an export that never left


@dataclass
class Account:
    """Span ids by the answer that their sender received, and the codes of exports that were not OK.

    `open` holds the spans that were not accepted. `cut` counts the exports whose connection ended
    before their answer, except those that found no connection.
    """

    accepted: set[bytes] = field(default_factory=set)
    open: set[bytes] = field(default_factory=set)
    codes: Counter = field(default_factory=Counter)
    cut: int = 0


class ConstantLoad:
    """`with ConstantLoad(address) as load:` sends from several connections until the block ends."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._mark, self._numbers = secrets.token_bytes(4), itertools.count(1)
        self._over, self._began = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(CONNECTIONS)]
        self._account = Account()

    def __enter__(self) -> "ConstantLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def account(self) -> Account:
        """Returns a copy of the account so far."""
        with self._lock:
            now = self._account
            return Account(set(now.accepted), set(now.open), Counter(now.codes), now.cut)

    def run(self, seconds: float) -> Account:
        """Lets the load run for `seconds`, and then until at least one export is accepted.

        Returns what this time added to the account. Raises AssertionError when nothing is accepted.
        """
        before = self.account()
        time.sleep(seconds)
        eventually(lambda: len(self.account().accepted) > len(before.accepted), "an export is accepted")
        now = self.account()
        return Account(
            now.accepted - before.accepted,
            now.open - before.open,
            now.codes - before.codes,
            now.cut - before.cut,
        )

    def wait_for_an_export(self) -> None:
        """Returns as an export begins. The caller then most likely acts in the middle of it."""
        self._began.clear()
        assert self._began.wait(WAIT_S), "no export has begun"

    def _send(self) -> None:
        with grpc.insecure_channel(self._address, OPTIONS) as channel:
            export = channel.unary_unary(TRACE_EXPORT)
            while not self._over.is_set():
                began = time.monotonic()
                self._deliver(export)
                self._over.wait(max(0.0, began + 1 / EXPORTS_PER_S - time.monotonic()))

    def _deliver(self, export) -> None:
        ids = [self._mark + next(self._numbers).to_bytes(4, "big") for _ in range(SPANS)]
        code, cut, request = None, False, _request(ids)
        self._began.set()
        try:
            answer = ExportTraceServiceResponse.FromString(export(request, timeout=EXPORT_S))
            accepted = not answer.partial_success.rejected_spans
        except grpc.RpcError as error:
            accepted, code = False, error.code()
            cut = code == grpc.StatusCode.UNAVAILABLE and NO_CONNECTION not in error.details()
        with self._lock:
            (self._account.accepted if accepted else self._account.open).update(ids)
            if not accepted:
                self._account.codes[code] += 1
                self._account.cut += cut


def _request(span_ids: list[bytes]) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key=names.SPAN_ATTRIBUTE_SERVICE).value.string_value = "frontend"
    spans, now = resource_spans.scope_spans.add().spans, time.time_ns()
    for span_id in span_ids:
        span = spans.add(trace_id=secrets.token_bytes(16), span_id=span_id, name="GET /cart/{id}", kind=2)
        span.start_time_unix_nano, span.end_time_unix_nano = now, now + 1_000_000
        span.attributes.add(key=names.OTEL_ATTRIBUTE_URL_PATH).value.string_value = f"/cart/{span_id.hex()}"
    return request.SerializeToString()


def in_kafka(kafka: str, wanted: set[bytes], quiet_s: float = 60.0) -> Counter:
    """Counts how often each span id is in the cluster's topic.

    Reads to the end of the topic once all wanted ids are there. Otherwise it stops when no message
    has arrived for `quiet_s` seconds, so that a slow machine does not look like a loss.
    """
    return asyncio.run(_read(kafka, wanted, quiet_s))


async def _read(kafka: str, wanted: set[bytes], quiet_s: float) -> Counter:
    consumer = AIOKafkaConsumer(
        names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=CLUSTER),
        bootstrap_servers=kafka,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    found, last = Counter(), time.monotonic()
    try:
        while time.monotonic() - last < quiet_s:
            batches = (await consumer.getmany(timeout_ms=500)).values()
            if not batches and wanted <= found.keys():  # read to the end, because repeats count too
                break
            for message in (message for batch in batches for message in batch):
                found.update(_span_ids(message.value))
                last = time.monotonic()
    finally:
        await consumer.stop()
    return found


def _span_ids(value: bytes) -> list[bytes]:
    request = ExportTraceServiceRequest.FromString(value)
    scopes = (scope for resource in request.resource_spans for scope in resource.scope_spans)
    return [span.span_id for scope in scopes for span in scope.spans]


def check_nothing_lost(kafka: str, account: Account, record_property) -> None:
    """Checks that every accepted span is in Kafka, and that no unknown span is.

    Reports repeats and the spans that were not accepted.
    """
    found = in_kafka(kafka, account.accepted)
    # of this load only: the broker may have received others
    marks = {span_id[:4] for span_id in account.accepted}
    found = Counter({span_id: times for span_id, times in found.items() if span_id[:4] in marks})
    report = {
        "accepted": len(account.accepted),
        "missing": len(account.accepted - found.keys()),
        "repeated": sum(found.values()) - len(found),
        "not_accepted": len(account.open),
        "not_accepted_but_arrived": len(account.open & found.keys()),
        "codes": {str(code): count for code, count in account.codes.items()},
        "cut": account.cut,
    }
    if missing := sorted(
        account.accepted - found.keys()
    ):  # Numbers increase with time, so they show which part of the load is missing.
        report["missing_numbers"] = [
            int.from_bytes(span_id[4:], "big") for span_id in (missing[0], missing[-1])
        ]
    for key, value in report.items():
        record_property(key, value)
    print(report)
    assert account.accepted and not report["missing"], report
    assert found.keys() <= account.accepted | account.open, "spans that nobody sent"
