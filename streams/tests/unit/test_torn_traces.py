"""A log after `admit` was killed: torn traces and repeated messages still give one row per call."""

from collections import Counter
from pathlib import Path

import pytest
from spillway_streams.batches import columns, native_batch
from spillway_streams.clients.transport import Start
from spillway_streams.ingest.shard import Shard, Shards
from spillway_streams.process.config import ExclusiveSettings
from truth import World

T0_MS = 1_700_000_000_000
AWAY_S, PIECES = 12, 3  # until a dead worker's session ends; messages of each trace
Log = list[tuple[float, bytes]]  # seconds since T0, payload


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    settings = ExclusiveSettings(
        kafka="h:1", health_listen="h:2", clickhouse_url="clickhouse://localhost", state_dir=tmp_path
    )
    return Shards(settings, 1).open(Start(0, 0, 1000, ""))


def _torn(world: World) -> Log:
    """One message of each trace was admitted before the kill, the others after it."""
    log: Log = []
    for n in range(40):
        first, *rest = world.messages([world.trace(T0_MS * 1000 + n * 10_000)], PIECES)
        log.append((n / 100, first.SerializeToString()))
        log += [(AWAY_S + n / 100, message.SerializeToString()) for message in rest]
    return sorted(log)


def _rows(shard: Shard, log: Log) -> Counter:
    """Returns how often each call, (trace, span), leaves the engine."""
    rows: Counter = Counter()
    for offset, (at, payload) in enumerate(log):
        ms = T0_MS + round(at * 1000)
        shard.engine.add(payload, offset, ms, ms, None)
        _close(shard, rows)
    shard.engine.advance(T0_MS + 600_000)
    _close(shard, rows)
    return rows


def _close(shard: Shard, rows: Counter) -> None:
    while (closed := shard.close(100_000)) is not None and closed.calls.rows:
        found = native_batch.read(columns.CALLS, closed.calls)
        rows.update(zip(map(bytes, found["trace_id"]), map(bytes, found["span_id"]), strict=True))


def test_traces_that_are_torn_apart_have_a_row_for_each_call(shard):
    """The rest of a trace comes after its beginning was stored: the beginning is not repeated."""
    world = World(3)
    assert _rows(shard, _torn(world)) == dict.fromkeys(_ids(world), 1)


def test_messages_that_are_admitted_again_make_no_further_row(shard):
    """Ten messages from before the kill follow again, while repeats are still recognised."""
    world = World(4)
    log = _torn(world)
    before = [payload for at, payload in log if at < AWAY_S]
    again = [(AWAY_S + n / 100, payload) for n, payload in enumerate(before[-10:])]
    assert _rows(shard, sorted(log + again)) == dict.fromkeys(_ids(world), 1)


def _ids(world: World) -> list[tuple[bytes, bytes]]:
    return [(trace.encode(), span.encode()) for trace, span in world.truth.calls]
