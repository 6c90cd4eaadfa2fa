"""The bounded buffer of rows for ClickHouse."""

from datetime import UTC, datetime

import pytest
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER
from spillway_lab.testing import servers
from spillway_publisher.bucket.values import Stored
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.clients.history import History
from spillway_publisher.process.telemetry import Telemetry


async def test_overflow_drops_the_oldest_and_counts(make):
    """While ClickHouse is away, the buffer is bounded, and dropped rows are counted."""
    telemetry = Telemetry()
    nobody = ClickHouse(f"clickhouse://u:p@127.0.0.1:{servers.free_port()}/spillway")
    history = History(nobody, telemetry, maximum_rows=9)
    for version in range(1, 5):
        # four rows
        history.published(make({"north": {"north": 5000, "south": 5000}}), version, "")
    history.published(make({}), 4, "")  # this version is known already
    assert telemetry.counters["history.dropped_rows"] == 8
    nobody.close()


@pytest.mark.parametrize(
    ("origin", "concludes", "state"),
    [(ORIGIN_OPTIMIZER, 2, "kept"), (ORIGIN_OPERATOR, 2, "rolled_back"), (ORIGIN_OPERATOR, 0, "rolled_back")],
)
def test_a_trial_that_ended_before_a_restart_is_recovered_with_its_end(make, origin, concludes, state):
    """Also one that an operator, the kill switch or a denial has ended, without concluding it."""
    spread = {"north": {"north": 5000, "south": 5000}}
    trial, after = make(spread), make({}, origin=origin)
    trial.version, after.version, after.concludes = 2, 3, concludes
    trial.canary.ruleset.CopyFrom(make(spread))
    history = History(ClickHouse("clickhouse://u:p@127.0.0.1:1/spillway"), Telemetry(), maximum_rows=100)
    history.recover([Stored(ruleset, datetime.now(UTC)) for ruleset in (trial, after)])
    states = {
        (row[1], row[3])
        for record in history._recoverable.values()
        for row in record.rows["transitions"]
        if row[3] in ("kept", "rolled_back")
    }
    assert states == {(trial.id, state)}
