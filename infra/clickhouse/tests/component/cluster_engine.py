"""Runs the DDL of a variant in an engine with a configured cluster.

Usage: `python cluster_engine.py FOLDER DDL VARIANT`. Prints JSON.

The embedded engine has ClickHouse's in-process Keeper, but no interserver address and no queue of
distributed DDL. So it can create a Replicated table but not activate it, and it can only parse ON
CLUSTER. Therefore the tables are first created as they are, but without ON CLUSTER. Then the
sharded tables are created again on plain engines, which take rows through Distributed. An ALTER
waits for an active replica, so only the plain engines run it.
"""

import json
import os
import re
import sys
from pathlib import Path

from spillway_clickhouse import engine
from spillway_clickhouse.migrate import read_folder, varied
from spillway_clickhouse.variants import Target

PORT = 9000  # no server listens here: an address with the engine's own port is the engine itself
CONFIGURATION = f"""<clickhouse>
  <tcp_port>{PORT}</tcp_port>
  <macros><shard>01</shard><replica>a</replica></macros>
  <zookeeper><implementation>testkeeper</implementation></zookeeper>
  <remote_servers><mesh><shard><internal_replication>true</internal_replication>
    <replica><host>127.0.0.1</host><port>{PORT}</port></replica>
  </shard></mesh></remote_servers>
</clickhouse>
"""
_REPLICATED = re.compile(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?([^)]*)\)")
ROWS = """INSERT INTO calls (started_at, trace_id, span_id, service, class, adjusted_count, trace_spans)
    SELECT toDateTime64('2026-01-01 00:00:00', 6, 'UTC') + number, leftPad(hex(number), 32, '0'), leftPad('1', 16, '0'),
           'a', 'a GET /', 1, {spans} FROM numbers(50) SETTINGS insert_distributed_sync = 1"""


def main(folder: Path, ddl: Path, variant: str) -> None:
    """Creates the tables, inserts rows with repeats, and prints engines and sums."""
    engine._configuration = lambda *_: CONFIGURATION
    connection = engine.Engine(folder, 1, 1 << 30).connect("")
    made = varied(read_folder(ddl), Target(variant, "mesh", "replicas"))
    texts = [text.replace(" ON CLUSTER 'mesh'", "") for m in made for text in m.statements]
    for database in ("replicas", "plain"):
        connection.run(f"CREATE DATABASE {database}")
    connection.run("USE replicas")
    for text in texts:
        if not text.startswith("ALTER"):
            connection.run(text)
    engines = connection.rows(
        "SELECT name, engine FROM system.tables WHERE database = 'replicas' ORDER BY name"
    )
    connection.run("USE plain")
    for text in texts:
        connection.run(_REPLICATED.sub(r"\1(\2)", text).replace("'replicas'", "'plain'").replace(
            "replicated_deduplication_window = ", "non_replicated_deduplication_window = "))  # fmt: skip
    for spans in (1, 3, 2):
        connection.run(ROWS.format(spans=spans))
    sums = connection.rows("SELECT count(), sum(trace_spans), any(source_cluster) FROM calls FINAL")
    print(json.dumps({"engines": dict(engines), "calls": sums}), flush=True)
    os._exit(0)  # threads of tables that wait for their replicas never end


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
