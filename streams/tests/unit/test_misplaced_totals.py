"""Counters in a partition that is not their service's: they make no service unknown."""

import time
from types import SimpleNamespace

import pytest
from counted_service import GOLDEN
from spillway_native import partition_of
from spillway_streams.boards import totals
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.jobs.live import Live
from spillway_streams.process.config import GraphSettings
from spillway_streams.process.counters import Counters

PARTITIONS = 4


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_counters_count_in_the_partition_of_their_service_alone(tmp_path, number: int):
    """In another partition its Envoys would have no further reports, and would count as missing."""
    counters, payload = Counters(), GOLDEN.read_bytes()
    [report] = totals.decode(payload, Counters(), "west")
    settings = GraphSettings(
        kafka="localhost:1", clickhouse_url="clickhouse://localhost", redis_url="redis://localhost",
        state_dir=tmp_path, health_listen="localhost:1",
    )  # fmt: skip
    context = SimpleNamespace(
        settings=settings, counters=counters, layout=SimpleNamespace(partitions=PARTITIONS)
    )
    state = SimpleNamespace(hot=HotTable(Window(5, 1.0), 100, counters))
    message = SimpleNamespace(timestamp=time.time(), partition=number)
    made = Live(None, context, None, SimpleNamespace(), None)
    made.take_totals(SimpleNamespace(value=payload, message=message), state, "west")
    place = ("west", report.service)
    if number == partition_of(report.service, PARTITIONS):
        assert state.hot.totals.services() == [place] and counters["totals"] == 1
    else:
        assert state.hot.totals.services() == [] and counters["totals"] == 0
        assert counters["rejected_totals: in another service's partition"] == 1
