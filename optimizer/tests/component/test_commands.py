"""`spillway plan` and `spillway explain` with real servers.

They read either history alone, or the running mesh.
"""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from optimizer_world import CLUSTERS

pytestmark = pytest.mark.component
GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
FRONTEND = "frontend GET /items/{id}"
WINDOW_S = 60
TABLES = ("calls", "edges", "cpu_1s", "rules")


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    command = [
        sys.executable,
        "-m",
        "spillway_optimizer",
        *arguments,
        "--topology",
        str(GOLDEN / "topology.yaml"),
    ]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def recorded(world):
    """A world with the history of one window. The value is the start of the window.

    The window has the model's demand, and a rule that sends a tenth of it to the other cluster.
    """
    for table in TABLES:
        world.clickhouse.execute(f"TRUNCATE TABLE {table}")
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    calls, edges = [], []
    for cluster in CLUSTERS:
        [(class_id, entry)] = world.model["demand"][cluster].items()
        for second in range(WINDOW_S):
            shared = {
                "started_at": start + timedelta(seconds=second),
                "trace_id": f"{second:032x}",
                "failed": False,
            }
            # One span per second stands for all requests of that second.
            weight = {"adjusted_count": float(entry["rps"]), "duration_us": 20_000, "trace_spans": 1}
            calls.append({
                **shared, **weight, "span_id": f"{cluster}{second}", "cluster": cluster, "service": "gateway",
                "class": class_id, "source_cluster": "", "source_service": "", "exclusive_us": 2000, "in_flight": 4,
                "arrival_rate": 1.0, "request_bytes": 0, "response_bytes": 0, "status": 200,
            })  # fmt: skip
            edges.append({
                **shared, **weight, "span_id": f"{cluster}{second}", "source_cluster": cluster,
                "source_service": "gateway", "source_class": class_id, "destination_cluster": cluster,
                "destination_service": "frontend", "class": FRONTEND, "network_us": 700, "request_bytes": 0,
                "response_bytes": 0, "status": 200, "ruleset_version": 0,
            })  # fmt: skip
    away = {
        "at": start - timedelta(seconds=30),
        "source_cluster": "west",
        "source_service": "gateway",
        "class": FRONTEND,
    }
    rules = [
        {**away, "version": version, "ruleset_id": "r", "destination_cluster": cluster, "weight": weight,
         "predicted_compute_ms": 0.0, "predicted_network_ms": 0.0, "reason": ""}
        for version, cluster, weight in ((8, "west", 10_000), (9, "west", 9000), (9, "east", 1000))
    ]  # fmt: skip
    # Publishing for east stopped a week ago, so this rule has expired despite its higher version.
    rules.append(rules[0] | {"at": start - timedelta(days=7), "source_cluster": "east", "version": 99})
    at = start + timedelta(seconds=WINDOW_S - 1)
    _model(world, at)
    for table, rows in (("calls", calls), ("edges", edges), ("rules", rules)):
        world.clickhouse.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)
    return start


def _model(world, at: datetime) -> None:
    """Writes the model's rows to ClickHouse as of this time."""
    for table, column in (
        ("curves", "fitted_at"),
        ("capacities", "measured_at"),
        ("call_ratios", "window_end"),
    ):
        world.clickhouse.execute(f"TRUNCATE TABLE {table}")
        rows = [{**row, column: at} for row in world.model[table]]
        world.clickhouse.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)


def _history(world, start: datetime) -> tuple[str, ...]:
    """Returns the arguments that make a command read the window that begins at `start`."""
    since = start.replace(tzinfo=None).isoformat()
    return "--clickhouse", world.clickhouse_url, "--since", since, "--window", f"{WINDOW_S}s"


def test_history_alone_is_planned_as_of_its_window(world, recorded):
    """Plans with the demand, the network, the model and the rules of a past window.

    What-if options work as they do elsewhere.
    """
    done = _run("plan", *_history(world, recorded), "--json", "--policies", "local")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    expected = {c: sum(e["rps"] for e in world.model["demand"][c].values()) for c in CLUSTERS}
    assert document["size"]["demand_rps"] == pytest.approx(expected)
    assert document["now"]["rules_from"].startswith("rules version 9 of ")
    assert "3 of 4 routes have no rule" in document["now"]["rules_from"]
    assert document["now"]["network_ms"] > document["policies"]["local"]["network_ms"] + 0.5
    # Every request makes two calls. Within a cluster they take the network time of the edges.
    assert document["policies"]["local"]["network_ms"] == pytest.approx(2 * 0.7)
    done = _run("plan", *_history(world, recorded), "--json", "--policies", "local", "--scale", "0.5")
    assert json.loads(done.stdout)["size"]["demand_rps"] == pytest.approx(
        {c: r / 2 for c, r in expected.items()}
    )


def test_history_explains_the_split_in_force(world, recorded):
    """With --rules now, the rule of the window is explained.

    Without it, its weights are shown beside the optimum.
    """
    done = _run("explain", FRONTEND, "west", *_history(world, recorded), "--rules", "now", "--json")
    assert done.returncode == 0, done.stderr
    [route] = json.loads(done.stdout)["routes"]
    assert {d["cluster"]: d["share"] for d in route["destinations"]} == pytest.approx(
        {"west": 0.9, "east": 0.1}
    )
    done = _run("explain", FRONTEND, "west", *_history(world, recorded), "--json")
    [route] = json.loads(done.stdout)["routes"]
    assert {d["cluster"]: d["share_now"] for d in route["destinations"]} == pytest.approx(
        {"west": 0.9, "east": 0.1}
    )


def test_a_window_without_calls_says_when_there_were_some(world, recorded):
    """The command exits with 1 and names the window and the newest call."""
    done = _run("plan", "--clickhouse", world.clickhouse_url, "--since", "2020-01-01", "--window", "5m")
    assert done.returncode == 1
    newest = recorded + timedelta(seconds=WINDOW_S - 1)
    assert "no entry call from 2020-01-01 00:00:00 to 2020-01-01 00:05:00 UTC" in done.stderr
    assert f"{newest:%Y-%m-%d %H:%M:%S}" in done.stderr


def test_the_running_mesh_is_the_default(world):
    """The commands read the boards from Redis and the model from ClickHouse.

    Both commands find the same optimum, and nothing is published.
    """
    environment = {
        "SPILLWAY_REDIS_URL": world.redis_server.url,
        "SPILLWAY_CLICKHOUSE_URL": world.clickhouse_url,
    }
    deadline = time.monotonic() + 20
    while (done := _run("plan", "--json", **environment)).returncode and time.monotonic() < deadline:
        time.sleep(0.3)  # until the world has filled its boards
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["source"] == "the running mesh"
    explained = _run("explain", FRONTEND, "west", "--json", **environment)
    assert explained.returncode == 0, explained.stderr
    predicted = json.loads(explained.stdout)["predicted"]
    best = document["policies"]["spillway"]
    assert predicted["mean_latency_ms"] == pytest.approx(best["mean_latency_ms"], rel=1e-3)
    assert world.proposals() == []
