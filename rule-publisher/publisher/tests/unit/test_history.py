"""The bounded buffer before ClickHouse."""

from spillway_lab.testing import servers
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.clients.history import History
from spillway_publisher.process.telemetry import Telemetry


async def test_overflow_drops_the_oldest_and_counts(make):
    """With ClickHouse away the buffer keeps at most its bound of rows, and says what it dropped."""
    telemetry = Telemetry()
    nobody = ClickHouse(f"clickhouse://u:p@127.0.0.1:{servers.free_port()}/spillway")
    history = History(nobody, telemetry, maximum_rows=7)
    for version in range(1, 5):
        history.published(make({"north": {"north": 5000, "south": 5000}}), version, "")  # three rows
    history.published(make({}), 4, "")  # known already
    assert telemetry.counters["history.dropped_rows"] == 6
    nobody.close()
