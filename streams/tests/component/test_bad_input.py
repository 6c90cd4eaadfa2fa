"""Input that nobody should send, on every topic that a job reads.

It becomes a dead letter with its reason, or a row with corrected values. It never causes a crash or
a stall. All good spans after it in the same partition are stored.
"""

import json
import time
from collections.abc import Iterator

import absurd
import broker
import judge
import pytest
from clickhouse_driver import Client
from faults import PARTITIONS, Mesh
from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from truth import World

SPANS, LETTERS = names.KAFKA_TOPIC_OTLP_SPANS, names.KAFKA_TOPIC_DEAD_LETTERS
_BROKER_LIMIT = 4_194_304  # message.max.bytes of infra/kafka
_ENVELOPE = 200  # bytes that a record batch adds to its payload, at most
_SETTLED_S = 240.0
_POLL_S = 0.5  # each answer has many rows
_HUGE = 100_000

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with Mesh(tmp_path_factory.mktemp("bad")) as mesh:
        broker.create(mesh.kafka.url, {SPANS: PARTITIONS}, message_timestamp_type="LogAppendTime")
        mesh.start_all()
        yield mesh


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=9)


@pytest.fixture(autouse=True)
def nothing_gave_up(mesh: Mesh) -> Iterator[None]:
    """Checks after each test that no worker ended, or started afresh, because of its input."""
    yield
    for job, [worker] in mesh.workers.items():
        assert worker.process.poll() is None, f"{job} ended:\n{worker.log.read_text()[-3000:]}"
        assert "starting afresh" not in worker.log.read_text(), job


def _good_comes_out(mesh: Mesh, world: World, without: str = "") -> None:
    """Sends some good traces to every partition, and waits until all of them are stored.

    They come after everything that is already in the partition.
    """
    for partition in range(PARTITIONS):
        traces = [world.trace(int(time.time() * 1e6)) for _ in range(10)]
        payloads = [request.SerializeToString() for request in world.messages(traces, 2)]
        broker.send(mesh.kafka.url, SPANS, payloads, partition)
    wrong: dict[str, str] = {}

    def as_it_must_be() -> bool:
        wrong.clear()
        wrong.update(judge.differences(mesh.clickhouse.url, world.truth, without))
        return not wrong

    eventually(as_it_must_be, "good spans' rows", _SETTLED_S, lambda: f"{wrong} {mesh.tails()}", _POLL_S)


def _letters(mesh: Mesh) -> list[tuple[tuple[str, int, int], dict[str, bytes], bytes]]:
    """Returns (topic, partition, offset), headers and value of every dead letter."""
    found = []
    for record in broker.read(mesh.kafka.url, LETTERS):
        headers = dict(record.headers)
        place = (
            headers[names.KAFKA_HEADER_DEAD_LETTER_TOPIC].decode(),
            int(headers[names.KAFKA_HEADER_DEAD_LETTER_PARTITION]),
            int(headers[names.KAFKA_HEADER_DEAD_LETTER_OFFSET]),
        )
        assert headers[names.KAFKA_HEADER_DEAD_LETTER_REASON]
        found.append((place, headers, record.value))
    return found


def _dead_lettered(mesh: Mesh, places: set[tuple[str, int, int]]) -> None:
    """Waits until all of these messages are dead letters."""

    def missing() -> set:
        return places - {place for place, _, _ in _letters(mesh)}

    eventually(
        lambda: not missing(), "dead letters", seen=lambda: (missing(), mesh.tails()), period_s=_POLL_S
    )


def test_payloads_that_are_no_export(mesh: Mesh, world: World):
    """Garbage, a cut request, a wrong length, and garbage as large as the broker takes.

    Each becomes a dead letter. If a payload and its headers are too large together, the payload is
    cut and a header states its original length.
    """
    [whole] = world.messages([World(3).trace(1_767_225_600_000_000)], 1)
    largest = b"\xff" * (_BROKER_LIMIT - _ENVELOPE)
    bad = [b"\xff no protobuf", whole.SerializeToString()[:-7], b"\x0a\xff\xff\xff\xff\x7f", largest]
    offsets = broker.send(mesh.kafka.url, SPANS, bad, partition=0)
    _good_comes_out(mesh, world)
    _dead_lettered(mesh, {(SPANS, 0, offset) for offset in offsets})
    [(headers, value)] = [(h, v) for place, h, v in _letters(mesh) if place == (SPANS, 0, offsets[-1])]
    assert int(headers[names.KAFKA_HEADER_DEAD_LETTER_TRUNCATED]) == len(largest)
    assert 1000 < len(value) < len(largest) and value == largest[: len(value)]


def test_absurd_spans(mesh: Mesh, world: World):
    """Each span becomes either a dead letter that contains it, or a call with possible values.

    The exception is a span that counts as work inside a service. Good spans in the same partition
    are not affected.
    """
    sent = {
        name: absurd.request(number, change, "odd")
        for number, (name, change) in enumerate(absurd.ODDITIES.items())
    }
    offsets = broker.send(
        mesh.kafka.url, SPANS, [request.SerializeToString() for _, request in sent.values()], partition=1
    )
    _good_comes_out(mesh, world, without="odd")
    dead_letters = {place[2]: value for place, _, value in _letters(mesh) if place[:2] == (SPANS, 1)}
    client = Client.from_url(mesh.clickhouse.url)
    rows = client.execute(
        "SELECT span_id, duration_us < 86400000000, exclusive_us <= duration_us, in_flight < 1000000, "
        "isFinite(arrival_rate), status < 1000, isFinite(adjusted_count), length(class) < 5000 "
        "FROM calls FINAL WHERE service = 'odd'"
    )
    client.disconnect()
    stored = {row[0]: row[1:] for row in rows}
    for (name, (span_id, _)), offset in zip(sent.items(), offsets, strict=True):
        if name in absurd.INSIDE:
            assert offset not in dead_letters and span_id.hex() not in stored, name
        elif offset in dead_letters:
            assert span_id in dead_letters[offset] and span_id.hex() not in stored, name
        else:
            assert span_id.hex() in stored, f"{name}: neither a dead letter nor a call"
            assert all(stored[span_id.hex()]), f"{name}: {stored[span_id.hex()]}"
    assert {"negative duration", "year 1970"} <= {
        name for name, offset in zip(sent, offsets, strict=True) if offset in dead_letters
    }


def test_a_trace_of_100_000_spans(mesh: Mesh, world: World):
    """The trace exceeds the limit of spans. It closes in parts, and every span becomes a call.

    The good traces come after it, because traces that begin in the same tick may close early, too.
    """
    requests = absurd.huge_trace(_HUGE, 10_000, "odd-huge")
    broker.send(mesh.kafka.url, SPANS, [request.SerializeToString() for request in requests], partition=2)
    client = Client.from_url(mesh.clickhouse.url)
    sql = "SELECT uniqExact(span_id) FROM calls WHERE service = 'odd-huge'"
    eventually(lambda: client.execute(sql) == [(_HUGE,)], "all calls", seen=lambda: client.execute(sql))
    client.disconnect()
    _good_comes_out(mesh, world, without="odd")


def test_150_spans_on_150_days(mesh: Mesh, world: World):
    """A tracer's clock may be wrong by any amount.

    The spans are of more days than ClickHouse accepts in one INSERT by default. Their rows are
    stored and stop nothing.
    """
    requests = [absurd.request(2_000 + n, absurd.days_ago(n), "odd-days")[1] for n in range(150)]
    payload = b"".join(
        request.SerializeToString() for request in requests
    )  # concatenated protobuf messages are merged into one
    broker.send(mesh.kafka.url, SPANS, [payload], partition=3)
    _good_comes_out(mesh, world, without="odd")
    client = Client.from_url(mesh.clickhouse.url)
    days = "SELECT count(), uniqExact(toDate(started_at)) FROM calls FINAL WHERE service = 'odd-days'"
    eventually(
        lambda: client.execute(days) == [(150, 150)], "the odd rows", seen=lambda: client.execute(days)
    )
    client.disconnect()


def test_a_row_that_clickhouse_never_takes(mesh: Mesh, world: World):
    """The row becomes a dead letter with the reason.

    The rows beside it are stored, and the offsets after it are committed.
    """
    client = Client.from_url(mesh.clickhouse.url)
    client.execute("ALTER TABLE calls ADD CONSTRAINT no_such_row CHECK service != 'odd-refused'")
    try:
        span_id, request = absurd.request(3_000, absurd.days_ago(0), "odd-refused")
        [offset] = broker.send(mesh.kafka.url, SPANS, [request.SerializeToString()], partition=3)
        _good_comes_out(mesh, world, without="odd")
        _dead_lettered(mesh, {("calls", 0, -1)})
        # A dead letter may be repeated after a rebalance.
        refused = [(h, v) for place, h, v in _letters(mesh) if place[0] == "calls"]
        assert {json.loads(value)["span_id"] for _, value in refused} == {span_id.hex()}
        assert all(b"no_such_row" in headers[names.KAFKA_HEADER_DEAD_LETTER_REASON] for headers, _ in refused)
        committed = lambda: broker.committed(mesh.kafka.url, "spillway-exclusive", SPANS).get(3, 0)  # noqa: E731
        eventually(lambda: committed() > offset, "the commit behind it", seen=mesh.tails)
    finally:
        client.execute("ALTER TABLE calls DROP CONSTRAINT no_such_row")
        client.disconnect()


def test_garbage_between_the_jobs(mesh: Mesh, world: World):
    """Every partition of every topic between the jobs receives garbage.

    The garbage is: bytes that are not Arrow, half of a batch, an empty message, and batches whose
    headers do not identify them. Each becomes a dead letter. Sums do not change, and later messages
    are processed.
    """
    places = set()
    topics = (
        names.KAFKA_TOPIC_CALLS,
        names.KAFKA_TOPIC_EDGES,
        names.KAFKA_TOPIC_NETWORK,
        names.KAFKA_TOPIC_ARRIVALS,
    )
    for topic in topics:
        records = broker.read(mesh.kafka.url, topic)
        good = max(records, key=lambda record: len(record.value or b""))
        headers = dict(good.headers)
        half = good.value[: len(good.value) // 2]
        for partition in range(PARTITIONS):
            bad = [(b"no Arrow", headers), (half, headers), (b"", headers)]
            if topic != names.KAFKA_TOPIC_ARRIVALS:  # arrivals are accepted without an identity
                bad += [(good.value, wrong) for wrong in _wrong_headers(headers)]
            for value, given_headers in bad:
                [offset] = broker.send(mesh.kafka.url, topic, [value], partition, given_headers)
                places.add((topic, partition, offset))
    _good_comes_out(mesh, world, without="odd")
    _dead_lettered(mesh, places)


def _wrong_headers(good: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yields headers whose source or sequence, or both, are missing or invalid."""
    source, sequence = names.KAFKA_HEADER_SOURCE, names.KAFKA_HEADER_SEQUENCE
    yield {}
    for key in (source, sequence):
        yield {name: value for name, value in good.items() if name != key}
        for value in (b"", b"one", b"-1", b"\xff", b"9" * 40):
            yield good | {key: value}
