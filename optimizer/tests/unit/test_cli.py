import json
import os
import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    return subprocess.run(
        [sys.executable, "-m", "spillway_optimizer", *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_plan_compares_every_policy():
    """On the golden model spillway has the lowest objective, and each rule its reason."""
    done = _run(
        "plan", "--model", str(GOLDEN / "3_model.json"), "--topology", str(GOLDEN / "topology.yaml"), "--json"
    )
    policies = json.loads(done.stdout)["policies"]
    assert set(policies) == {"local", "failover", "waterfall", "spillway"}
    best = min(policies, key=lambda name: policies[name]["objective_usd_per_hour"])
    assert best == "spillway"
    assert all(rule["reason"] for policy in policies.values() for rule in policy["rules"])


def test_a_missing_file_is_named():
    """Bad input ends with 1 and the path."""
    done = _run("plan", "--model", "nowhere.json", "--topology", str(GOLDEN / "topology.yaml"))
    assert done.returncode == 1 and "nowhere.json" in done.stderr


def test_run_refuses_to_start_without_its_identity():
    """Exit 64, and every wrong variable is listed; secrets in values are not echoed."""
    done = _run(
        "run", SPILLWAY_POLICY="fastest", SPILLWAY_REDIS_URL="redis://:secret@x", SPILLWAY_HEALTH_LISTEN="80"
    )
    assert done.returncode == 64
    for name in (
        "SPILLWAY_TOPOLOGY",
        "SPILLWAY_CLICKHOUSE_URL",
        "SPILLWAY_NATS_URL",
        "SPILLWAY_HEALTH_LISTEN",
    ):
        assert name in done.stderr
    assert "SPILLWAY_POLICY: Value error, must be one of failover, local, spillway, waterfall" in done.stderr
    assert "secret" not in done.stderr
