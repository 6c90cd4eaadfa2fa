"""Variants of the schema in the real engine.

All of them parse. Their tables are created as far as a single engine can.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_driver import Client
from spillway_clickhouse.migrate import read_folder, varied
from spillway_clickhouse.variants import CLUSTERED, VARIANTS, Target

pytestmark = pytest.mark.component

DDL = Path(__file__).resolve().parents[4] / "contracts" / "clickhouse"
ENGINE = Path(__file__).with_name("cluster_engine.py")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_statement_parses(server_url, variant):
    """ClickHouse's own parser accepts each statement of each variant."""
    target = Target(variant, "mesh" if variant in CLUSTERED else "", "spillway")
    texts = [text for migration in varied(read_folder(DDL), target) for text in migration.statements]
    with Client.from_url(server_url) as client:
        for text in texts:
            assert client.execute(f"EXPLAIN AST {text}"), text


@pytest.mark.parametrize("variant", ["replicated", "distributed"])
def test_tables_of_a_cluster(tmp_path, variant):
    """Replicated and Distributed tables are created from the files.

    Repeats through Distributed replace each other, and the row with the most spans wins.
    """
    command = [sys.executable, str(ENGINE), str(tmp_path), str(DDL), variant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    engines = found["engines"]
    if variant == "distributed":
        assert engines["calls"] == engines["load_parts"] == "Distributed"
        assert engines["calls_local"] == engines["rulesets"].replace("MergeTree", "ReplacingMergeTree")
    else:
        assert engines["calls"] == "ReplicatedReplacingMergeTree" and "calls_local" not in engines
    assert {e for e in engines.values() if e.endswith("MergeTree")} <= {
        "ReplicatedMergeTree", "ReplicatedReplacingMergeTree"
    }  # fmt: skip
    assert found["calls"] == [["50", "150", ""]] or found["calls"] == [[50, 150, ""]]


def test_a_cloud_schema_is_made_without_a_cluster(database):
    """The command takes the variant in the same way as the install path gives it.

    The server's own engine is kept, which here is MergeTree. The deduplication window is the one
    that a replicated engine reads. A database keeps the variant in which it was created.
    """
    command = [sys.executable, "-m", "spillway_clickhouse.migrate", "--ddl", str(DDL), "--variant"]
    environment = os.environ | {"SPILLWAY_CLICKHOUSE_URL": database}
    for variant, code in (("cloud", 0), ("cloud", 0), ("single", 1)):
        done = subprocess.run(
            [*command, variant], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stderr
    assert "variant single: the database was made as cloud" in done.stderr
    with Client.from_url(database) as client:
        made = dict(
            client.execute(
                "SELECT name, create_table_query FROM system.tables"
                " WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
            )
        )
    assert "calls" in made and "positions" in made
    for name, text in made.items():
        if name != "schema_migrations":
            assert " replicated_deduplication_window = 10000" in text and "non_replicated" not in text, name
    named = subprocess.run(
        [*command, "cloud", "--cluster", "mesh"], env=environment, capture_output=True, text=True
    )
    assert named.returncode == 64 and "SPILLWAY_CLICKHOUSE_CLUSTER: must be set with variant" in named.stderr
