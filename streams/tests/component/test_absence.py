"""Servers that are away at the start or while a job runs, and a second worker."""

from collections.abc import Callable
from contextlib import ExitStack

import broker
import pytest
from clickhouse_driver import Client
from spillway_contracts import names
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.servers import clickhouse_process
from spillway_lab.testing.waiting import STOP_S, eventually
from spillway_streams.process import health
from spillway_streams.recorded import jaeger


def _payloads(files, cluster: str, first: int, n: int) -> list[bytes]:
    """Returns one message per trace.

    They are sent without a key, and are so many that no partition stays empty.
    """
    found = jaeger.in_time_order(jaeger.read(files[0]))[first : first + n]
    return [batch.SerializeToString() for trace in found for batch in jaeger.batches([trace], cluster)]


def _stored(url: str, cluster: str) -> int:
    """Returns how many distinct calls of a cluster are stored, or -1 if ClickHouse is away."""
    client = Client.from_url(url)
    try:
        sql = "SELECT uniqExact(trace_id, span_id) FROM calls WHERE cluster = %(c)s"
        [(n,)] = client.execute(sql, {"c": cluster})
        return n
    except Exception:
        return -1
    finally:
        client.disconnect()


@pytest.mark.timeout(420)
def test_clickhouse_and_kafka_may_go_away(tmp_path, run_job, hotel_reservation):
    """The health endpoint names the server that is missing, and no call is lost.

    ClickHouse is absent at the start and is killed while spans arrive. Then Kafka is killed. The
    missing server is also named by a job that sends nothing, and by workers beyond the number of
    partitions. A worker ends on SIGTERM while Kafka is away. After each return, every call is
    stored.
    """
    with ExitStack() as servers:
        kafka = servers.enter_context(kafka_process(tmp_path))
        clickhouse = servers.enter_context(clickhouse_process(tmp_path))
        clickhouse.stop()
        environment = {
            "SPILLWAY_KAFKA": kafka.url,
            "SPILLWAY_CLICKHOUSE_URL": clickhouse.url,
            "SPILLWAY_STREAMS_ACCEPT_UNADMITTED": "true",
            "SPILLWAY_STREAMS_TOPIC_PARTITIONS": "1",
        }
        job = servers.enter_context(run_job("exclusive", tmp_path, **environment))
        eventually(lambda: "clickhouse" in job.state()["problems"], "503 that names ClickHouse")
        clickhouse.start()
        eventually(lambda: job.state()["ready"], "ready")
        broker.send(kafka.url, names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "away", 0, 30))
        eventually(lambda: _stored(clickhouse.url, "away") == 180, "the first calls")

        clickhouse.kill()
        broker.send(kafka.url, names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "away", 30, 30))
        eventually(lambda: "clickhouse" in job.state()["problems"], "ClickHouse missed")
        clickhouse.start()
        eventually(lambda: _stored(clickhouse.url, "away") == 360, "calls sent without ClickHouse")

        folders = [tmp_path / name for name in ("one", "two", "three")]
        readers = [servers.enter_context(run_job("classify", folder, **environment)) for folder in folders]

        def all_readers(holds: Callable[[dict], bool], what: str) -> None:
            def states() -> list[dict]:
                return [reader.state() for reader in readers]

            eventually(lambda: all(map(holds, states())), what, seen=states)

        all_readers(lambda state: state["ready"], "readers ready")
        kafka.kill()
        all_readers(lambda state: health.CONSUMER in state["problems"], "Kafka missed by readers")
        for spare in (readers.pop(), readers.pop()):
            spare.process.terminate()
            spare.process.wait(STOP_S)
        kafka.start()
        all_readers(lambda state: state["ready"], "Kafka is back")
        broker.send(kafka.url, names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "away", 60, 30))
        eventually(lambda: _stored(clickhouse.url, "away") == 540, "calls after Kafka's return", 120)


@pytest.mark.timeout(420)
def test_a_second_worker_takes_its_share_and_its_leaving_loses_nothing(
    jobs, send, clickhouse_url, hotel_reservation
):
    """Workers join and leave while spans arrive, and every call is stored."""
    first = jobs("exclusive")
    send(names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "shared", 100, 40))
    second = jobs("exclusive")

    def second_takes_some() -> bool:
        # Sends until it does, because the first worker may take everything until partitions are
        # reassigned.
        send(names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "shared", 140, 40))
        return second.counters().get("calls", 0) > 0

    eventually(second_takes_some, "spans at the second worker")
    first.process.terminate()
    first.process.wait(STOP_S)
    send(names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation, "shared", 180, 40))
    eventually(
        lambda: _stored(clickhouse_url, "shared") == 720,
        "720 calls",
        240,
        lambda: (_stored(clickhouse_url, "shared"), second.state(), second.tail()),
    )
