"""Capacities as the optimizer reads them from ClickHouse."""

from datetime import UTC, datetime, timedelta

import pytest
from clickhouse_driver import Client
from spillway_lab.testing import servers
from spillway_optimizer.clients.history import History

pytestmark = pytest.mark.component

# By name: measurements as (seconds ago, pods counted then), and the expected lowest count of pods
# in the last minutes (0: unknown).
CASES = {
    "steady": ([(600, 4), (100, 4), (5, 4)], 4),
    "rollout": ([(600, 4), (90, 4), (60, 8), (5, 8)], 4),
    "two rollouts": ([(600, 4), (160, 8), (100, 4), (5, 8)], 4),
    "scaled": ([(600, 4), (500, 8), (100, 8), (5, 8)], 8),
    "just begun": ([(60, 1), (55, 2), (5, 2)], 0),
    "not counted": ([(600, 0), (5, 0)], 0),
    "idle": ([(600, 4)], 0),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with servers.clickhouse_process(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server.url


@pytest.mark.parametrize("name", CASES)
def test_the_newest_capacity_comes_with_the_fewest_pods_of_the_last_minutes(url, name):
    """The row read has the newest capacity, its pods, and the lowest count of the last minutes."""
    now = datetime.now(UTC)
    client = Client.from_url(url)
    client.execute("TRUNCATE TABLE capacities")
    counted, settled = CASES[name]
    rows = [
        {
            "measured_at": now - timedelta(seconds=ago), "input_window": "", "cluster": "west", "service": "shop",
            "capacity_rps": 100.0 * pods + ago, "source": "cpu", "reason": "", "pods": pods, "evidence": "cpu",
        }
        for ago, pods in counted
    ]  # fmt: skip
    client.execute(f"INSERT INTO capacities ({', '.join(rows[0])}) VALUES", rows)
    client.disconnect()
    history = History(url)
    (row,) = history.model().capacities
    history.close()
    assert (row.pods, row.settled) == (counted[-1][1], settled)
    assert row.capacity_rps == pytest.approx(rows[-1]["capacity_rps"])
    assert row.measured_at == pytest.approx(rows[-1]["measured_at"].timestamp(), abs=0.01)
