"""No program has a default identity.

Started without its environment, each ends with 64 and names every variable.
"""

import os
import re
import subprocess
import sys

import pytest
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
PYTHON = [sys.executable, "-m"]
NEEDS = {
    "exclusive": ([*PYTHON, "spillway_streams", "exclusive"], ["KAFKA", "CLICKHOUSE_URL", "HEALTH_LISTEN", "STATE_DIR"]),
    "admit": ([*PYTHON, "spillway_streams", "admit"], ["KAFKA", "CLUSTERS"]),
    "classify": ([*PYTHON, "spillway_streams", "classify"], ["KAFKA", "CLICKHOUSE_URL"]),
    "curves": ([*PYTHON, "spillway_streams", "curves"], ["KAFKA", "CLICKHOUSE_URL", "REDIS_URL"]),
    "graph": ([*PYTHON, "spillway_streams", "graph"], ["KAFKA", "CLICKHOUSE_URL", "REDIS_URL"]),
    "topics": ([*PYTHON, "spillway_streams", "topics", "--file", "infra/kafka/topics.yaml"], ["KAFKA"]),
    "acls": ([*PYTHON, "spillway_streams", "acls", "--file", "infra/kafka/acls.yaml"], ["KAFKA"]),
    "classes": ([*PYTHON, "spillway_streams", "classes", "list"], ["CLICKHOUSE_URL"]),
    "optimizer": ([*PYTHON, "spillway_optimizer", "run"], ["CLICKHOUSE_URL", "NATS_URL", "REDIS_URL", "HEALTH_LISTEN"]),
    "papa": ([*PYTHON, "spillway_optimizer", "papa"], ["CLICKHOUSE_URL", "NATS_URL", "REDIS_URL", "HEALTH_LISTEN"]),
    "policy": ([*PYTHON, "spillway_optimizer", "policy", "local"], ["REDIS_URL"]),
    "publisher": ([*PYTHON, "spillway_publisher", "run"], ["CLICKHOUSE_URL", "NATS_URL", "REDIS_URL", "SIGNING_KEY"]),
    "rollback": ([*PYTHON, "spillway_publisher", "rollback", "--reason", "r"], ["NATS_URL", "RULESET_KEYS"]),
    "migrate": ([*PYTHON, "spillway_clickhouse.migrate", "--ddl", "contracts/clickhouse"], ["CLICKHOUSE_URL"]),
    "clickhouse": ([*PYTHON, "spillway_clickhouse.server"], ["CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD", "CLICKHOUSE_LISTEN"]),
    "collector": (["collectors/run"], ["CLUSTER", "KAFKA", "STATE_DIR"]),
    "relay": ([ROOT / ".spillway/bin/spillway-relay"], ["CLUSTER", "NATS_URL", "RULESET_KEYS", "XDS_CERT", "XDS_KEY"]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_program_without_its_environment_says_what_it_lacks(name):
    """Empty variables, which a chart with a missing secret would set, count as missing."""
    command, wanted = NEEDS[name]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SPILLWAY_")}
    for environment in (clean, clean | {f"SPILLWAY_{variable}": "" for variable in wanted}):
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 64, (done.returncode, done.stderr[-2000:])
        for variable in wanted:
            assert re.search(rf"SPILLWAY_{variable}\b", done.stderr), (variable, done.stderr)
        assert "Traceback" not in done.stderr


def test_redis_does_not_start_without_its_password():
    """The passwords of only some users are not enough either."""
    for given, lacking in (
        ({}, "REDIS_PASSWORD"),
        ({"REDIS_STREAMS_PASSWORD": "p" * 32}, "REDIS_PAPA_PASSWORD"),
    ):
        environment = {"PATH": os.environ["PATH"], "REDIS_BIND": "127.0.0.1", "REDIS_PORT": "1", **given}
        done = subprocess.run(
            [ROOT / "infra/redis/run"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 64 and f"{lacking}: not set" in done.stderr


def test_compose_asks_for_every_secret():
    """Compose refuses to start without any of the passwords in docker-compose.yml.

    The file contains no default values for them.
    """
    text = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"\$\{(\w*PASSWORD\w*)", text))
    assert used and used == set(re.findall(r"\$\{(\w*PASSWORD\w*):\?", text))
    assert not re.search(r"\$\{\w+:?-", text), "a default value"
    made = subprocess.run([ROOT / "infra/compose/secrets"], capture_output=True, text=True, check=True).stdout
    assert {line.partition("=")[0] for line in made.splitlines()} == used
    assert len({line.partition("=")[2] for line in made.splitlines()}) == len(used)
