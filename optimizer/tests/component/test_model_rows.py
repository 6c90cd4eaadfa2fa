"""The model's rows as the optimizer reads them from ClickHouse."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from clickhouse_driver import Client
from spillway_optimizer.clients.history import History

pytestmark = pytest.mark.component
# Values that no row can have.
NONE = (math.nan, math.inf, -math.inf, -1e300, 1e300)
# By table: the column of its time, the values of other columns, the column that gets impossible
# values, and a possible value of it.
TABLES = {
    "curves": ("fitted_at", {"service": "shop", "class": "shop GET /", "b_ms": 2.0, "norm_weight": 1.0}, "a_ms", 3.0),
    "capacities": ("measured_at", {"cluster": "west", "service": "shop"}, "capacity_rps", 50.0),
    "call_ratios": ("window_end", {"source_class": "web GET /", "class": "shop GET /"}, "calls_per_request", 2.0),
    "network_times": (
        "window_end", {"source_cluster": "west", "destination_cluster": "east", "samples": 9}, "mean_ms", 5.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_cannot_be_hides_no_row_before_it(backends, table):
    """Impossible values are written after a good one, by somebody who may write the table.

    The good row remains the newest that is read.
    """
    at, of, column, good = TABLES[table]
    url, now = backends[2].url, datetime.now(UTC)
    client, history = Client.from_url(url), History(url)
    client.execute(f"TRUNCATE TABLE {table}")
    rows = [{at: now - timedelta(seconds=60), **of, column: good}]
    rows += [{at: now - timedelta(seconds=n), **of, column: value} for n, value in enumerate(NONE)]
    client.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)
    model = history.model()
    found = {"network_times": model.network}.get(table) or getattr(model, table)
    assert ([getattr(row, column) for row in found], model.malformed) == ([good], ())
    client.disconnect()
    history.close()


def test_a_spread_that_cannot_be_is_unknown_and_its_row_is_read(backends):
    """The curve itself is good. So is a row of the previous version, without the columns."""
    url, now = backends[2].url, datetime.now(UTC)
    client, history = Client.from_url(url), History(url)
    client.execute("TRUNCATE TABLE curves")
    spreads = [(2.0, -2.0, -0.9), (0.0, 0.0, 1.0), (-1.0, 5.0, 1.5), (1.0, 1e300, -math.inf), (math.nan,) * 3]
    spreads += [(2.0, -3.0, 2.0)]  # below 0 at low loads
    client.execute(
        "INSERT INTO curves (fitted_at, service, class, a_ms, norm_weight, sd_a_ms, sd_b_ms, ab_correlation) VALUES",
        [(now, "shop", f"shop GET /{k}", 3.0, 1.0, *spread) for k, spread in enumerate(spreads)],
    )
    client.execute(
        "INSERT INTO curves (fitted_at, service, class, a_ms, norm_weight) VALUES",
        [(now, "shop", "shop GET /without", 3.0, 1.0)],
    )
    model = history.model()
    found = {row.class_id: (row.sd_a_ms, row.sd_b_ms, row.ab_correlation) for row in model.curves}
    names = [*(f"shop GET /{k}" for k in range(len(spreads))), "shop GET /without"]
    unknown = (None, None, None)
    assert [found[name] for name in names] == [*spreads[:2], *[unknown] * 5] and model.malformed == ()
    client.disconnect()
    history.close()


def test_errors_of_curves_and_capacities_are_read_and_unknown_without_evidence(backends):
    """Relative to the capacity, of the evidence that was decisive. 0 is unknown, not exact."""
    url, now = backends[2].url, datetime.now(UTC)
    client, history = Client.from_url(url), History(url)
    client.execute("TRUNCATE TABLE curves")
    client.execute("TRUNCATE TABLE capacities")
    client.execute(
        "INSERT INTO curves (fitted_at, service, class, a_ms, norm_weight, a_se_ms, b_se_ms) VALUES",
        [(now, "shop", f"shop GET /{k}", 3.0, 1.0, se, 2.0) for k, se in enumerate((0.5, 0.0, math.inf))],
    )
    columns = "capacity_rps, evidence, cpu_rps, cpu_se, latency_rps, latency_se, limit_rps, limit_se"
    rows = [
        ("cpu", 100.0, "cpu", 100.0, 5.0, 50.0, 40.0, 0.0, 0.0),
        ("latency", 50.0, "latency", 0.0, 0.0, 50.0, 20.0, 0.0, 0.0),
        ("queue", 40.0, "queue", 0.0, 0.0, 50.0, 20.0, 40.0, 4.0),
        ("assumed", 40.0, "assumed", 40.0, 1.0, 0.0, 0.0, 0.0, 0.0),
        ("nothing", 40.0, "cpu", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    ]
    client.execute(
        f"INSERT INTO capacities (measured_at, service, cluster, {columns}) VALUES",
        [(now, "shop", *row) for row in rows],
    )
    model = history.model()
    assert [row.a_se_ms for row in sorted(model.curves, key=lambda row: row.class_id)] == [0.5, None, None]
    found = {row.cluster: row.error for row in model.capacities}
    assert found == {"cpu": 0.05, "latency": 0.4, "queue": 0.1, "assumed": None, "nothing": None}
    assert model.malformed == ()
    client.disconnect()
    history.close()


def test_a_measured_capacity_goes_before_one_that_is_assumed_since(backends):
    """An assumed capacity does not replace an older measured one.

    No capacity can be measured while the load varies little. If the assumed capacity were used
    then, it would be on a ramp that starts at the served rate. The cluster would get less load,
    serve less, and so on.
    """
    url, now = backends[2].url, datetime.now(UTC)
    client, history = Client.from_url(url), History(url)
    client.execute("TRUNCATE TABLE capacities")
    rows = [("west", 300, 90.0, "cpu"), ("west", 60, 100.0, "cpu"), ("west", 5, 50.0, "assumed")]
    rows += [("east", 5, 7.0, "assumed")]
    client.execute(
        "INSERT INTO capacities (measured_at, cluster, service, capacity_rps, pods, evidence) VALUES",
        [(now - timedelta(seconds=ago), cluster, "shop", rps, 2, why) for cluster, ago, rps, why in rows],
    )
    found = {row.cluster: row for row in history.model().capacities}
    assert (found["west"].capacity_rps, found["west"].evidence, found["west"].pods) == (100.0, "cpu", 2)
    assert now.timestamp() - found["west"].measured_at == pytest.approx(60, abs=0.01)
    assert (found["east"].capacity_rps, found["east"].evidence) == (7.0, "assumed")
    client.disconnect()
    history.close()
