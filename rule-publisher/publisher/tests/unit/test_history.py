"""The bounded buffer of rows for ClickHouse."""

from spillway_lab.testing import servers
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.clients.history import History
from spillway_publisher.process.telemetry import Telemetry


async def test_overflow_drops_the_oldest_and_counts(make):
    """While ClickHouse is away, the buffer is bounded, and dropped rows are counted."""
    telemetry = Telemetry()
    nobody = ClickHouse(f"clickhouse://u:p@127.0.0.1:{servers.free_port()}/spillway")
    history = History(nobody, telemetry, maximum_rows=7)
    for version in range(1, 5):
        # three rows
        history.published(make({"north": {"north": 5000, "south": 5000}}), version, "")
    history.published(make({}), 4, "")  # this version is known already
    assert telemetry.counters["history.dropped_rows"] == 6
    nobody.close()
