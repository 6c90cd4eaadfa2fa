"""Nothing is lost and nothing counts twice, whatever is killed while spans are sent.

The rows and sums are compared, span by span, with a truth that is computed separately.
"""

import os
import random
import time
from collections.abc import Iterator

import broker
import judge
import pytest
from faults import JOBS, PARTITIONS, Mesh, Sender
from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from truth import World

AWAY_S = float(os.environ.get("SPILLWAY_TEST_AWAY_S", "15"))
SEED = int(os.environ.get("SPILLWAY_TEST_SEED", "4"))
KILLS_OF_EACH_JOB = 2
# Everything is read, closed and stored within this time, even on a busy machine.
_SETTLED_S = 300.0
_POLL_S = 0.5  # each answer has many rows
# Inputs that are acknowledged once they are stored. Calls that graph reads are kept in memory and
# acknowledged much later, so they are not listed.
STORED = (
    ("spillway-curves", names.KAFKA_TOPIC_CALLS),
    ("spillway-graph", names.KAFKA_TOPIC_EDGES),
    ("spillway-graph", names.KAFKA_TOPIC_NETWORK),
)

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with Mesh(tmp_path_factory.mktemp("mesh")) as mesh:
        broker.create(
            mesh.kafka.url, {names.KAFKA_TOPIC_OTLP_SPANS: PARTITIONS}, message_timestamp_type="LogAppendTime"
        )
        mesh.start_all()
        yield mesh


@pytest.fixture(scope="module")
def world() -> World:
    return World(SEED)


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{SEED} {request.node.name}")


def _settled(mesh: Mesh, world: World) -> None:
    """Waits until everything that was ever sent is stored, each span once.

    Checks that it stays so when nothing is left to read.
    """
    _true(mesh, world)
    eventually(
        lambda: not _left(mesh),
        "all batches are acknowledged",
        _SETTLED_S,
        lambda: (_left(mesh), mesh.tails()),
        _POLL_S,
    )
    assert not judge.differences(mesh.clickhouse.url, world.truth)


def _left(mesh: Mesh) -> dict[tuple[str, str], int | None]:
    """Returns the numbers of unacknowledged messages between the jobs, by group and topic."""
    lags = {place: broker.lag(mesh.kafka.url, *place) for place in STORED}
    return {place: lag for place, lag in lags.items() if lag != 0}


def _true(mesh: Mesh, world: World) -> None:
    """Waits until all rows and sums equal the truth."""
    wrong: dict[str, str] = {"": "not asked yet"}

    def as_it_must_be() -> bool:
        wrong.clear()
        try:
            wrong.update(judge.differences(mesh.clickhouse.url, world.truth))
        except OSError as error:  # the server is just starting
            wrong["clickhouse"] = str(error)
        return not wrong

    def seen() -> str:
        return "\n".join(f"{table}: {text}" for table, text in wrong.items()) + mesh.tails()

    eventually(as_it_must_be, "rows and sums are the truth's", _SETTLED_S, seen, _POLL_S)


def test_workers_are_killed_at_random_moments(mesh: Mesh, world: World, dice: random.Random):
    """Each job's worker is killed with SIGKILL several times, in any order and at any moment."""
    order = list(JOBS) * KILLS_OF_EACH_JOB
    dice.shuffle(order)
    with Sender(mesh.kafka.url, world):
        for job in order:
            time.sleep(dice.uniform(0.5, 6.0))
            [worker] = mesh.workers[job]
            worker.kill()
            worker.start()
        time.sleep(2.0)
    _settled(mesh, world)


def test_the_broker_is_killed(mesh: Mesh, world: World, dice: random.Random):
    """Kafka is killed with SIGKILL, twice.

    Workers may have read, computed and stored messages that they have not acknowledged yet.
    """
    with Sender(mesh.kafka.url, world) as sender:
        for _ in range(2):
            time.sleep(dice.uniform(2.0, 6.0))
            with sender.between_chunks():
                mesh.kafka.kill()
                mesh.kafka.start()
    _settled(mesh, world)


def test_clickhouse_is_away(mesh: Mesh, world: World, dice: random.Random):
    """ClickHouse is killed with SIGKILL and returns after SPILLWAY_TEST_AWAY_S seconds.

    A worker is killed meanwhile.
    """
    with Sender(mesh.kafka.url, world):
        time.sleep(dice.uniform(1.0, 3.0))
        mesh.clickhouse.kill()
        [worker] = mesh.workers["exclusive"]
        worker.kill()
        time.sleep(AWAY_S)
        mesh.clickhouse.start()
        worker.start()
        time.sleep(2.0)
    _settled(mesh, world)


def test_workers_come_and_go(mesh: Mesh, world: World, dice: random.Random):
    """A second worker of each job joins, so that partitions move.

    Then the first worker of each job is killed for good.
    """
    with Sender(mesh.kafka.url, world):
        firsts = {job: mesh.workers[job][0] for job in JOBS}
        for job in JOBS:
            mesh.start(job)
        time.sleep(dice.uniform(2.0, 5.0))
        for job, worker in firsts.items():
            mesh.drop(job, worker)
            time.sleep(dice.uniform(0.0, 3.0))
    _settled(mesh, world)


def _some(mesh: Mesh, world: World) -> None:
    """Sends spans to every partition, and waits until everything that they yield is stored."""
    with Sender(mesh.kafka.url, world):
        time.sleep(1.0)
    _settled(mesh, world)


def test_the_whole_topic_is_replayed(mesh: Mesh, world: World):
    """exclusive reads otlp_spans again from its beginning.

    Rows and sums stay the same, and spans that are sent afterwards are added.
    """
    _some(mesh, world)
    mesh.replay([names.KAFKA_TOPIC_OTLP_SPANS], ("exclusive",))
    # These spans come after the replayed ones in every partition. Once they are stored, so are all
    # spans before them.
    _some(mesh, world)
    assert mesh.counters("exclusive")["calls"] >= len(world.truth.calls), "not all of it was computed again"


def test_the_jobs_outputs_are_replayed(mesh: Mesh, world: World):
    """The jobs read calls, edges and network times again from the beginning.

    curves and graph recognise every batch as a repeat. classify keeps only samples in memory, so it
    takes all batches anew.
    """
    _some(mesh, world)
    calls = len(world.truth.calls)
    stored = (names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK)
    batches = {topic: sum(broker.ends(mesh.kafka.url, topic).values()) for topic in stored}
    mesh.replay([names.KAFKA_TOPIC_CALLS, *stored], ("classify", "curves", "graph"))
    _some(mesh, world)
    assert mesh.counters("curves")["repeated_calls"] >= calls
    graph = mesh.counters("graph")
    for topic, n in batches.items():
        assert graph[f"repeated_batches: {topic}"] >= n, graph
    eventually(lambda: mesh.counters("classify")["calls"] >= calls, "all calls taken anew", _SETTLED_S)
