"""`python -m spillway_streams all`: all jobs in one process, with real servers."""

import json
import time
import urllib.request
from collections.abc import Iterator

import broker
import judge
import pytest
from faults import PARTITIONS, Mesh, Sender
from prometheus_client.parser import text_string_to_metric_families
from spillway_contracts import names
from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import eventually
from truth import CLUSTERS, World

pytestmark = pytest.mark.timeout(900)
JOBS = ("admit", "exclusive", "classify", "curves", "graph")
_SETTLED_S = 300.0


@pytest.fixture
def listens() -> dict[str, str]:
    """The address of each job's own endpoint."""
    return {job: f"127.0.0.1:{free_port()}" for job in JOBS}


@pytest.fixture
def mesh(tmp_path_factory: pytest.TempPathFactory, listens: dict[str, str]) -> Iterator[Mesh]:
    """Servers, and one process with all jobs."""
    with Mesh(tmp_path_factory.mktemp("all")) as mesh:
        of_clusters = [names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=name) for name in CLUSTERS]
        topics = dict.fromkeys([names.KAFKA_TOPIC_OTLP_SPANS, *of_clusters], PARTITIONS)
        broker.create(mesh.kafka.url, topics, message_timestamp_type="LogAppendTime")
        own = {f"SPILLWAY_{job.upper()}_HEALTH_LISTEN": listen for job, listen in listens.items()}
        mesh.start("all", SPILLWAY_CLUSTERS=",".join(CLUSTERS), **own)
        yield mesh


def _get(listen: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{listen}{path}", timeout=30) as answer:
        return answer.read().decode()


def _counters(listen: str) -> dict[str, int]:
    return json.loads(_get(listen, "/readyz"))["counters"]


def _topics(listen: str) -> set[str]:
    """Returns the topics whose lag the metrics of a job name."""
    families = text_string_to_metric_families(_get(listen, "/metrics"))
    samples = [sample for family in families for sample in family.samples]
    return {s.labels["topic"] for s in samples if s.name == "spillway_streams_consumer_lag_records"}


def test_one_process_with_all_jobs_stores_the_rows_of_separate_processes(mesh, listens):
    """Rows and sums equal the truth, as those of separate processes do in test_nothing_lost.py.

    The process is killed with SIGKILL while spans come. Each job has its own consumer group,
    counters and metrics.
    """
    world = World(11)
    [worker] = mesh.workers["all"]
    with Sender(mesh.kafka.url, world):
        time.sleep(3.0)
        worker.kill()
        worker.start()
        time.sleep(4.0)
    eventually(
        lambda: not judge.differences(mesh.clickhouse.url, world.truth),
        "rows and sums are the truth's",
        _SETTLED_S,
        lambda: (judge.differences(mesh.clickhouse.url, world.truth), mesh.tails()),
        0.5,
    )
    spans = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=CLUSTERS[0])
    broker.send(mesh.kafka.url, spans, [b""])
    eventually(lambda: _counters(listens["admit"]).get(f"admitted_messages: {CLUSTERS[0]}"), "admission")
    assert _topics(listens["exclusive"]) == {names.KAFKA_TOPIC_OTLP_SPANS}
    assert _topics(listens["classify"]) == {names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES}
    assert {"traces", "messages"} <= _counters(listens["exclusive"]).keys()
    assert "messages" not in _counters(listens["curves"])
    for job, topic in (("curves", names.KAFKA_TOPIC_CALLS), ("graph", names.KAFKA_TOPIC_EDGES)):
        eventually(lambda j=job, t=topic: broker.committed(mesh.kafka.url, f"spillway-{j}", t), job)


def test_the_process_is_ready_when_all_its_jobs_are(mesh, listens):
    """While Redis is away, the jobs that write boards are not ready. The problem names the job."""
    assert json.loads(_get(mesh.workers["all"][0].url.removeprefix("http://").split("/")[0], "/livez"))[
        "ready"
    ]
    mesh.redis.kill()

    def problems() -> set[str]:
        listen = mesh.workers["all"][0].url.removeprefix("http://").split("/")[0]
        return set(json.loads(_get(listen, "/livez"))["problems"])

    eventually(lambda: problems() == {"curves: redis", "graph: redis"}, "both jobs", seen=problems)
    assert json.loads(_get(listens["exclusive"], "/readyz"))["ready"]
    mesh.redis.start()
    eventually(lambda: not problems(), "ready again", seen=problems)
