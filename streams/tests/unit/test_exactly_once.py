"""Consumers have the same parts and the same memory, whatever the order, repeats and crashes.

A stand-in for the stored tables does what they do: a part replaces the part of its identity.
"""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_contracts import names
from spillway_streams.batches import columns, positions
from spillway_streams.batches.parts import AbsurdRows
from spillway_streams.graph import callgraph
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.jobs import curves, graph
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import LoadTable
from spillway_streams.process.counters import Counters
from traffic_log import T0, calls, edges, log, with_repeats

SEEDS = st.integers(0, 2**32)
CALLS = names.KAFKA_TOPIC_CALLS


class Tables:
    """load_parts (or another table of parts) and positions, of one partition."""

    def __init__(self) -> None:
        self.parts: dict[tuple, list[float]] = {}
        self.last: dict[tuple, int] = {}

    def store_parts(self, batch, parts) -> None:
        for row in zip(*parts.columns(), strict=True):
            names_ = len(row) - parts.sums.shape[1]
            self.parts[(*row[:names_], *batch[1:])] = list(row[names_:])

    def store_positions(self, batches) -> None:
        for _, topic, partition, source, sequence in positions.rows("j", batches):
            place = (topic, partition, source)
            self.last[place] = max(self.last.get(place, 0), sequence)

    def stored(self, topic: str) -> list[tuple]:
        return [(*place, sequence) for place, sequence in self.last.items() if place[0] == topic]

    def restored(self, topic: str) -> list[list]:
        """Returns columns of the parts up to the positions, summed over batches."""
        sums: dict[tuple, np.ndarray] = defaultdict(lambda: 0)
        for (*key, partition, source, sequence), row in self.parts.items():
            if sequence <= self.last.get((topic, partition, source), -1):
                sums[tuple(key)] = sums[tuple(key)] + np.array(row)
        return [list(column) for column in zip(*((*key, *row) for key, row in sums.items()), strict=True)]

    def total(self) -> dict[tuple, np.ndarray]:
        """Returns what sums over FINAL give, per second and key."""
        sums: dict[tuple, np.ndarray] = defaultdict(lambda: 0)
        for (*key, _, _, _), row in self.parts.items():
            sums[tuple(key)] = sums[tuple(key)] + np.array(row)
        return dict(sums)


def _state() -> curves.PartitionState:
    return curves.PartitionState(LoadTable(3600, Counters()), CpuTable(10), hot=None, modeller=None)


def _memory(table: LoadTable) -> dict[tuple, np.ndarray]:
    return {
        (second, *key): sums
        for key, series in table.series.items()
        for second, sums in zip(series.all()[0].tolist(), series.all()[1], strict=True)
    }


def _same(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for key, sums in found.items():
        assert sums == pytest.approx(expected[key], rel=1e-9)


def _truth(messages: list) -> dict[tuple, np.ndarray]:
    """Returns the memory when each batch counts once, by its identity."""
    table = LoadTable(3600, Counters())
    for rows in dict(messages).values():
        table.add(rows)
    return _memory(table)


def _run(random: np.random.Generator, messages: list, crash: float) -> tuple[Tables, curves.PartitionState]:
    """Runs workers until one ends in order.

    A worker flushes now and then, and may die at any step of it. The next one restores the tables
    and reads from the committed offset.
    """
    tables, committed = Tables(), 0
    while True:
        state, offset, waiting = _state(), committed, []
        state.restore(tables.stored(CALLS), tables.restored(CALLS), [])
        dying = random.random() < crash
        steps = int(random.integers(0, 4)) if dying else 3
        end = random.integers(committed, len(messages) + 1) if dying else len(messages)
        while offset < end:
            batch, rows = messages[offset]
            waiting.append((batch, state.fold(batch, rows, 0.0)))
            offset += 1
            if random.random() < 0.3 or offset == end:
                committed = _flush(tables, waiting, offset, committed, steps if offset == end else 3)
                waiting = []
        if not dying:
            return tables, state


def _flush(tables: Tables, waiting: list, offset: int, committed: int, steps: int) -> int:
    """Stores parts, positions and offset, in this order. Dies after `steps` steps."""
    if steps > 0:
        for batch, parts in waiting:
            if parts is not None:
                tables.store_parts(batch, parts)
    if steps > 1:
        tables.store_positions(batch for batch, _ in waiting)
    return offset if steps > 2 else committed


@given(SEEDS)
@settings(max_examples=60)
def test_restarts_and_repeats_change_nothing(seed):
    """Workers die at any step, and writers repeat batches: stored sums and memory are correct."""
    random = np.random.default_rng(seed)
    messages = with_repeats(random, log(random, calls))
    tables, state = _run(random, messages, crash=0.7)
    truth = _truth(messages)
    _same(tables.total(), truth)
    _same(_memory(state.load), truth)


@given(SEEDS)
@settings(max_examples=20)
def test_a_whole_topic_that_is_replayed_changes_nothing(seed):
    """Offsets are reset to the beginning while the tables are kept: nothing is counted again."""
    random = np.random.default_rng(seed)
    messages = log(random, calls)
    tables, _ = _run(random, messages, crash=0.0)
    state = _state()
    state.restore(tables.stored(CALLS), tables.restored(CALLS), [])
    assert all(state.fold(batch, rows, 0.0) is None for batch, rows in messages)
    _same(_memory(state.load), _truth(messages))


@given(SEEDS)
@settings(max_examples=20)
def test_order_of_sources_and_splitting_of_batches_change_no_sum(seed):
    """Sources may be read in any order, and a batch may arrive as several chunks."""
    random = np.random.default_rng(seed)
    messages = log(random, calls)
    order = random.permutation(3)
    shuffled = sorted(messages, key=lambda message: order[message[0].source])
    chunks = []
    for batch, rows in shuffled:
        cut = int(random.integers(0, columns.length(rows) + 1))
        split = np.split(random.permutation(columns.length(rows)), [cut])
        chunks += [
            (batch._replace(sequence=batch.sequence + i), columns.take(rows, w)) for i, w in enumerate(split)
        ]
    tables, state = _run(random, chunks, crash=0.3)
    _same(tables.total(), _truth(messages))
    _same(_memory(state.load), _truth(messages))


@given(SEEDS)
@settings(max_examples=20)
def test_the_graph_restarts_without_counting_twice(seed):
    """Edges come from parts, requests from unacknowledged messages: ratios are the same."""
    random = np.random.default_rng(seed)
    served = with_repeats(random, log(random, calls))
    made = with_repeats(random, log(random, edges, names.KAFKA_TOPIC_EDGES))
    counters = Counters()
    state, tables = graph.PartitionState(CallGraph(600, 100, counters), hot=None, outcomes=None), Tables()
    for batch, rows in made:
        if state.take(batch, counters):
            state.add(state.graph.edges, state.watermark, batch, callgraph.edge_parts(rows))
            tables.store_parts(batch, callgraph.edge_parts(rows))
    tables.store_positions(batch for batch, _ in made)
    for batch, rows in served:
        if state.take(batch, counters):
            state.add_requests(batch, callgraph.request_parts(rows), 2.0)
    again = graph.PartitionState(CallGraph(600, 100, counters), hot=None, outcomes=None)
    again.restore(tables.stored(names.KAFKA_TOPIC_EDGES), tables.restored(names.KAFKA_TOPIC_EDGES), [])
    assert not any(again.take(batch, counters) for batch, _ in made)
    for batch, rows in served:
        if again.take(batch, counters):
            again.add_requests(batch, callgraph.request_parts(rows), 2.0)
    window = (T0, T0 + 30, 0)
    ratios = state.graph.call_ratios(*window)
    assert ratios
    for row, same in zip(ratios, again.graph.call_ratios(*window), strict=True):
        assert row[:6] == same[:6] and row[6:] == pytest.approx(same[6:])


@pytest.mark.parametrize(
    ("column", "value"), [("adjusted_count", np.nan), ("adjusted_count", -1.0), ("arrival_rate", np.inf)]
)
def test_rows_that_cannot_be_true_spoil_no_sum(column, value):
    """A negative number or a NaN makes the batch absurd: neither rows nor sequence are taken."""
    random = np.random.default_rng(3)
    [(batch, rows)] = log(random, calls, sources=1, batches=1)
    rows["arrival_rate"][0] = 1.0
    absurd = rows | {column: np.where(np.arange(columns.length(rows)) == 0, value, rows[column])}
    state = _state()
    with pytest.raises(AbsurdRows):
        state.fold(batch, absurd, 0.0)
    with pytest.raises(AbsurdRows):
        state.fold(batch, rows | {"started_at": rows["started_at"] - 2**60}, 0.0)
    assert not state.load.series and state.fold(batch, rows, 0.0) is not None
