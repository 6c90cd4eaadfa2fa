"""The loop is closed: requests through an Envoy become weights in the same Envoy."""

import time
import uuid
from pathlib import Path

import httpx
import pytest
from loop_harness import Background, Loop
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, traffic_class
from spillway_lab.report import questions
from spillway_lab.stack import envoys
from spillway_lab.stack.control import InForce
from spillway_lab.testing.waiting import WAIT_S, eventually

SQL = Path(__file__).resolve().parents[2] / "docs/sql"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_requests_through_an_envoy_become_weights_in_its_config_dump(loop: Loop):
    """After load, the weights in each caller's Envoy are the published rules from that load.

    The overloaded cluster sends some of its load away.
    """
    background = Background(loop.stack, "loop", 40)
    closed = loop.closed_since(time.time())
    current = eventually(
        lambda: routing_away(loop, closed.version),
        "the rules in force, some leading away, in every Envoy",
        seen=loop.believed,
    )
    samples = background.samples()
    assert current.policy == "spillway"
    assert samples.ok.all()


def routing_away(loop: Loop, at_least: int) -> InForce | None:
    """Returns the rules in force if they send something away and every Envoy has exactly them.

    Returns None while versions change.
    """
    current = loop.control.in_force()
    if current is None or current.version < at_least:
        return None
    away = 0
    for pod in loop.stack.plan.pods:
        routes = envoys.outbound_routes(pod) or {}
        rules = [r for r in current.rulesets[pod.cluster].rules if r.source_service == pod.service]
        for rule in rules:
            destinations = envoys.weights(routes, rule.traffic_class.service)
            found = destinations[traffic_class.format_id(rule.traffic_class)]
            assert sum(found.values()) == names.VALUE_WEIGHT_TOTAL
            published = {d.cluster: d.weight for d in rule.destinations if d.weight}
            if {cluster: weight for cluster, weight in found.items() if weight} != published:
                return None
            away += sum(weight for cluster, weight in found.items() if cluster != pod.cluster)
    return current if away else None


TRACED = """
    SELECT a.version, any(r.input_window), any(s.outcome), count()
    FROM acknowledgements AS a
    INNER JOIN rulesets AS r ON r.version = a.version
    INNER JOIN solves AS s ON s.ruleset_id = r.ruleset_id
    INNER JOIN rules ON rules.version = a.version
    INNER JOIN edges ON edges.ruleset_version = a.version
    WHERE a.outcome = 'ack' AND a.version > 0
    GROUP BY a.version ORDER BY a.version DESC LIMIT 1
"""


def test_a_weight_can_be_traced_to_the_spans_that_caused_it(loop: Loop):
    """One ruleset version joins Envoy's acknowledgement, rule, solve, input window and calls."""
    client = loop.clickhouse()
    background = Background(loop.stack, "trace", 20)
    loop.closed_since(time.time())
    background.samples()
    row = eventually(lambda: client.execute(TRACED), "a version that joins its rules, its solve and a call")
    start, end = (int(part) / 1000 for part in row[0][1].split("-"))
    calls = client.execute(
        "SELECT count() FROM calls WHERE toUnixTimestamp64Milli(toDateTime64(started_at, 3)) BETWEEN %(a)s AND %(b)s",
        {"a": int(start * 1000), "b": int(end * 1000)},
    )[0][0]
    assert calls > 0


def test_spans_that_do_not_decode_are_refused_with_an_error_and_the_rest_goes_on(loop: Loop):
    """The collector answers 400 to garbage. Garbage in Kafka becomes a dead letter."""
    cluster = loop.stack.scenario.clusters[0]
    port = loop.stack.cluster_ports[cluster]["OTLP_HTTP_PORT"]
    headers = {"content-type": "application/x-protobuf"}
    answer = httpx.post(
        f"https://127.0.0.1:{port}/v1/traces",
        content=b"\xff" * 50,
        headers=headers,
        verify=loop.sender(cluster),
    )
    assert answer.status_code == 400
    letters = _dead_letter_after(loop, b"\xff\xfe not a span")
    assert any("ExportTraceServiceRequest" in reason or "decode" in reason.lower() for reason in letters), (
        letters
    )
    loop_goes_on(loop)


def test_a_ruleset_that_breaks_the_contract_is_refused_by_key_and_the_loop_goes_on(loop: Loop):
    """The publisher names the key and what is allowed in the audit table.

    It publishes the next good ruleset.
    """
    bad = Ruleset(id=f"bad-{uuid.uuid4()}", policy="spillway", origin="ORIGIN_PAPA")
    bad.input_window.id = "1-2"
    bad.created_at.GetCurrentTime()
    bad.expires_at.FromSeconds(bad.created_at.seconds + 60)
    rule = bad.rules.add(source_cluster="nowhere", source_service="a")
    rule.traffic_class.service, rule.traffic_class.method, rule.traffic_class.path_template = "a", "GET", "/"
    rule.destinations.add(cluster="nowhere", weight=9999)
    _propose(loop, bad)
    client, refusal = loop.clickhouse(), "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
    rows = eventually(lambda: client.execute(refusal, {"id": bad.id}), "a row of the refusal")
    assert rows[0][0] == "refused"
    assert "rules[0].source_cluster: unknown cluster 'nowhere'" in rows[0][1]
    assert "weights sum to 9999; must be 10000" in rows[0][1]
    loop_goes_on(loop)


# Questions that may have an empty answer in a healthy loop. Nobody acts in this one.
MAY_BE_EMPTY = {"acts", "class_decisions", "first_failures"}
ENTRY = "SELECT class FROM calls WHERE source_service = '' GROUP BY class ORDER BY count() DESC LIMIT 1"


@pytest.mark.parametrize("name", sorted(path.stem for path in SQL.glob("*.sql")))
def test_every_question_of_the_docs_has_an_answer(loop: Loop, name: str):
    """The queries of docs/sql run on the stack's data. All but MAY_BE_EMPTY return rows."""
    client, now = loop.clickhouse(), time.time()
    known = {
        "start": now - 3600, "end": now, "earlier_start": now - 3600, "earlier_end": now,
        "class": client.execute(ENTRY)[0][0], "version": client.execute("SELECT max(ruleset_version) FROM edges")[0][0],
        "ruleset": str(client.execute("SELECT max(version) FROM rulesets")[0][0]),
        "usd_per_gb": 0.02, "tolerance": 0, "min_calls": 1, "traces": 5, "utilisation": 0.7,
    }  # fmt: skip
    question = questions.read(SQL / f"{name}.sql")
    _, rows = questions.ask(client, SQL / f"{name}.sql", {key: known[key] for key in question.parameters})
    assert rows or name in MAY_BE_EMPTY


def loop_goes_on(loop: Loop) -> None:
    background = Background(loop.stack, "goes-on", 20)
    loop.closed_since(time.time())
    assert background.samples().ok.all()


def _propose(loop: Loop, ruleset: Ruleset) -> None:
    import asyncio

    import nats

    async def publish() -> None:
        connection = await nats.connect(loop.stack.nats_url("papa"), inbox_prefix=names.NATS_INBOX_PAPA)
        await connection.jetstream().publish(
            names.NATS_SUBJECT_PROPOSALS.format(origin="papa"), ruleset.SerializeToString()
        )
        await connection.close()

    asyncio.run(publish())


def _dead_letter_after(loop: Loop, payload: bytes) -> list[str]:
    """Sends the payload as spans and returns the reasons of the dead letters that contain it."""
    import asyncio

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def roundtrip() -> list[str]:
        address = loop.stack.environment["SPILLWAY_KAFKA"]
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        await producer.send_and_wait("otlp_spans.west", payload)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            names.KAFKA_TOPIC_DEAD_LETTERS, bootstrap_servers=address, auto_offset_reset="earliest"
        )
        await consumer.start()
        reasons, deadline = [], time.monotonic() + WAIT_S
        while not reasons and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    if record.value == payload:
                        reasons.append(dict(record.headers)[names.KAFKA_HEADER_DEAD_LETTER_REASON].decode())
        await consumer.stop()
        return reasons

    return asyncio.run(roundtrip())


def test_messages_in_kafka_are_fat_and_keep_traces_together(loop: Loop):
    """Under load a message has many spans, and a trace's messages are all in one partition."""
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    async def received() -> list[tuple[int, set[bytes], int]]:
        """Returns (partition, trace ids, number of spans) of each message until load has ended."""
        address, found = loop.stack.environment["SPILLWAY_KAFKA"], []
        consumer = AIOKafkaConsumer(
            names.KAFKA_TOPIC_OTLP_SPANS, bootstrap_servers=address, auto_offset_reset="latest"
        )
        await consumer.start()
        await consumer.seek_to_end()
        # Envoys flush once a second. At the scenario's rate their batches, split by partition, have
        # about 5 spans.
        background = Background(loop.stack, "fat", 10, times=2)
        requests = len(await asyncio.to_thread(background.samples))
        deadline = time.monotonic() + WAIT_S
        # There is one trace per request. Envoy may drop spans if the machine is too slow for them.
        while len(set().union(*(traces for _, traces, _ in found))) < 0.9 * requests:
            assert time.monotonic() < deadline, f"{requests} requests, {len(found)} messages"
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    request = ExportTraceServiceRequest.FromString(record.value)
                    spans = [
                        s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans
                    ]
                    found.append((record.partition, {span.trace_id for span in spans}, len(spans)))
        await consumer.stop()
        return found

    messages = asyncio.run(received())
    spans = sum(count for _, _, count in messages)
    print(f"{spans} spans in {len(messages)} messages: {spans / len(messages):.1f} per message")
    assert spans / len(messages) > 5, f"{spans} spans in {len(messages)} messages"
    partitions: dict[bytes, set[int]] = {}
    for partition, traces, _ in messages:
        for trace in traces:
            partitions.setdefault(trace, set()).add(partition)
    assert all(len(where) == 1 for where in partitions.values())
