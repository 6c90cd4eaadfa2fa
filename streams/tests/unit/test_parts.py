"""Sums per second and key, identities of batches, windows of recent seconds, network histograms."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_contracts import names
from spillway_streams.batches import positions
from spillway_streams.batches.parts import AbsurdRows, Parts, checked, fold
from spillway_streams.batches.positions import Batch, HeaderError, Positions
from spillway_streams.batches.strings import Strings
from spillway_streams.boards.event_time import Watermark
from spillway_streams.graph import network
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2_000_000_000), st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 99)
    ),
    max_size=60,
)


@pytest.mark.parametrize("second", [-1, 2**32, -(2**63), 2**63 - 1])
def test_a_second_that_cannot_be_is_refused_before_it_is_reckoned_with(second):
    """Numbers of groups are products of ranges, which must fit into 64 bits."""
    with pytest.raises(AbsurdRows, match="seconds"):
        fold(np.array([5, second]), (Strings.of("ab"),), (np.ones(2),))


@pytest.mark.parametrize("value", [1e308, float("inf"), float("nan"), -1.0])
def test_a_sum_that_cannot_be_is_refused(value):
    """Such a row would spoil every sum that includes it. Two finite ones may add up to infinity."""
    with pytest.raises(AbsurdRows, match=r"b, second 5: sum 0 is .*; must be within 0\.\.1e\+30"):
        checked(fold(np.array([5, 5]), (Strings.of("ab"),), (np.array([1, value]),)))


@given(ROWS)
def test_a_fold_is_a_sum_by_second_and_key(rows):
    """Against a dict: the same groups and sums, each group once, ordered by key and second.

    Seconds may be far apart.
    """
    expected: dict = defaultdict(float)
    for at, a, b, value in rows:
        expected[at, a, b] += value
    at, a, b, value = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    found = fold(np.array(at, np.int64), (Strings.of(a), np.array(b, object)), (np.array(value, float),))
    got = [(s, *found.keys[k]) for s, k in zip(found.at.tolist(), found.key.tolist(), strict=True)]
    assert dict(zip(got, found.sums[:, 0].tolist(), strict=True)) == expected and len(got) == len(expected)
    assert np.all(np.diff(found.key) >= 0) and len(set(found.keys)) == len(found.keys)
    if rows:
        assert found.columns()[1].tolist() == [name for _, name, _ in got]


def _headers(source: object, sequence: object) -> list:
    values = ((names.KAFKA_HEADER_SOURCE, source), (names.KAFKA_HEADER_SEQUENCE, sequence))
    return [(name, str(value).encode()) for name, value in values if value is not None]


def test_a_batch_is_named_by_its_headers():
    """Valid headers are whole numbers within bounds.

    The error names a header that is missing, not a number, too large, or of the far future.
    """
    now = 1_700_000_000.0
    sequence = (int(now * 2) << positions.CHUNK_BITS) | 3
    assert positions.identify("t", 4, _headers(7, sequence), now) == Batch("t", 4, 7, sequence)
    for source, other, reason in (
        (None, sequence, "spillway-source: missing"),
        (1, None, "spillway-sequence: missing"),
        ("x", sequence, "spillway-source: b'x' must be a whole number in 0..65535"),
        (65536, sequence, "spillway-source"),
        (1, -1, "spillway-sequence: b'-1'"),
        (1, 2**63, "spillway-sequence"),
        (1, int(now * 2 + 8000) << positions.CHUNK_BITS, "the message is of second 1700000000"),
    ):
        with pytest.raises(HeaderError, match=reason):
            positions.identify("t", 4, _headers(source, other), now)
    with pytest.raises(HeaderError, match="missing"):
        positions.identify("t", 4, None, now)


def test_what_is_not_above_the_last_one_is_a_repeat():
    """Per topic, partition and source. Stored positions count; the last of each is stored."""
    known = Positions([("t", 0, 1, 50)])
    assert not known.take(Batch("t", 0, 1, 50)) and known.take(Batch("t", 0, 1, 51))
    assert (
        not known.take(Batch("t", 0, 1, 51))
        and known.take(Batch("t", 0, 2, 1))
        and known.take(Batch("u", 0, 1, 1))
    )
    taken = [Batch("t", 0, 1, 51), Batch("t", 0, 1, 52), Batch("t", 0, 1, 51), Batch("t", 0, 0, 0)]
    assert positions.rows("j", taken) == [("j", "t", 0, 0, 0), ("j", "t", 0, 1, 52)]


def _parts(rows: list[tuple[int, str, float]]) -> Parts:
    at, key, value = zip(*rows, strict=True)
    return fold(np.array(at, np.int64), (Strings.of(key),), (np.array(value, float),))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abcd"), st.integers(0, 9)), min_size=1),
    st.integers(0),
)
@settings(max_examples=50)
def test_a_window_is_a_sum_whatever_the_batches(rows, seed):
    """Any order and any split of the rows give the same totals of a window."""
    random = np.random.default_rng(seed)
    shuffled = [rows[i] for i in random.permutation(len(rows))]
    many = Recent("x", 1, 100, 100, Counters())
    for i in range(0, len(shuffled), 3):
        many.add(_parts(shuffled[i : i + 3]))
    expected: dict = defaultdict(float)
    for at, key, value in rows:
        if 5 <= at < 15:
            expected[(key,)] += value
    assert {key: float(sums[0]) for key, sums in many.total(5, 15).items()} == expected


def test_recent_memory_is_bounded():
    """Bounds apply to seconds and keys; the rest is counted. Silent keys make room for new ones."""
    counters = Counters()
    recent = Recent("x", 1, 3, 2, counters)
    recent.add(_parts([(1, "a", 1), (1, "b", 1), (1, "c", 1)]))
    assert len(recent.total(0, 9)) == 2 and counters["beyond_memory: x: keys"] == 1
    for second in (2, 3, 4):
        recent.add(_parts([(second, "b", 1.0)]))
    recent.add(_parts([(1, "b", 1.0)]))
    assert counters["beyond_memory: x: seconds"] == 1
    recent.add(_parts([(5, "d", 7.0)]))
    assert {key: float(sums[0]) for key, sums in recent.total(0, 9).items()} == {("b",): 2.0, ("d",): 7.0}


@given(st.lists(st.floats(1, 1e8), min_size=1, max_size=200))
def test_quantiles_of_the_histogram_are_within_two_percent(times):
    """Median and 99th percentile (nearest rank) are within 2 %, and the mean is exact."""
    us = np.array(times)
    found = fold(np.zeros(len(us), np.int64), (network.bucket_of(us),), (np.ones(len(us)), us))
    buckets = {found.keys[k][0]: row for k, row in zip(found.key.tolist(), found.sums, strict=True)}
    mean, p50, p99, n = network.summary(buckets)
    ranked = np.sort(us) / 1000
    assert mean == pytest.approx(us.mean() / 1000) and n == len(us)
    for got, share in ((p50, 0.5), (p99, 0.99)):
        assert got == pytest.approx(ranked[int(np.ceil(share * len(us) - 1e-9)) - 1], rel=0.0201)


def test_event_time_is_that_of_the_slowest_active_source():
    """A source read ahead of the others does not set the time; a silent source does not hold it."""
    mark = Watermark()
    assert mark.now(0) is None
    mark.note(0, 1000, wall=10)
    mark.note(1, 500, wall=10)
    assert mark.now(11) == 500
    mark.note(0, 1001, wall=16)
    assert mark.now(16) == 1001
    assert mark.now(99) == 1001
