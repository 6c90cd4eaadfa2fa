"""Variants of the schema in the real engine: all of them parse; tables are created as far as one engine can."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_driver import Client
from spillway_clickhouse.migrate import read_folder, varied
from spillway_clickhouse.variants import VARIANTS, Target

pytestmark = pytest.mark.component

DDL = Path(__file__).resolve().parents[4] / "contracts" / "clickhouse"
ENGINE = Path(__file__).with_name("cluster_engine.py")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_statement_parses(server_url, variant):
    """ClickHouse's own parser takes each statement of each variant."""
    target = Target(variant, "" if variant == "single" else "mesh", "spillway")
    texts = [text for migration in varied(read_folder(DDL), target) for text in migration.statements]
    with Client.from_url(server_url) as client:
        for text in texts:
            assert client.execute(f"EXPLAIN AST {text}"), text


@pytest.mark.parametrize("variant", ["replicated", "distributed"])
def test_tables_of_a_cluster(tmp_path, variant):
    """Replicated and Distributed tables are created from the files; repeats through Distributed replace each other,
    the row with most spans wins."""
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
