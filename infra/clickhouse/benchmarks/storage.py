"""What codecs and indexes of contracts/clickhouse save, and what the questions of docs/sql take.

    SPILLWAY_CLICKHOUSE_URL=clickhouse://... \\
    python infra/clickhouse/benchmarks/storage.py [--rows 1000000] [--ddl FOLDER]

The same rows go into the tables as they are (second column) and into tables without CODEC and INDEX
(first), in databases of their own, which are dropped. Progress on stderr, a table, and a last line
of JSON.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import generated
from clickhouse_driver import Client
from spillway_clickhouse.config import MigrateConfig
from spillway_clickhouse.migrate import read_folder
from spillway_runtime.settings import load

DDL = Path(__file__).resolve().parents[3] / "contracts" / "clickhouse"
BATCHES, REPEATS = 10, 9
CALLS = """started_at, trace_id, span_id, cluster, service, class, source_cluster, source_service, duration_us, exclusive_us,
    in_flight, arrival_rate, class_in_flight, class_arrival_rate, request_bytes, response_bytes, status, failed,
    adjusted_count, trace_spans, stored_at"""
EDGES = """started_at, trace_id, span_id, source_cluster, source_service, source_class, destination_cluster,
    destination_service, class, duration_us, network_us, request_bytes, response_bytes, status, failed, adjusted_count,
    ruleset_version, trace_spans, source_call, stored_at"""
PARTS = """at, cluster, service, class, partition, source, sequence, arrivals, failed, samples, ok, exclusive_ms,
    exclusive_sq_ms2, stamped, rate, class_stamped, class_rate, stored_at"""
TABLES = {
    "calls": (CALLS, lambda *where: f"SELECT {CALLS} FROM ({generated.calls(*where)})"),
    "edges": (EDGES, lambda *where: f"SELECT {EDGES} FROM ({generated.edges(*where)})"),
    "load_parts": (PARTS, generated.load_parts),
}
_MINUTES = (
    "BETWEEN toDateTime64('2026-03-01 00:30:00', 6, 'UTC') AND toDateTime64('2026-03-01 00:35:00', 6, 'UTC')"
)
QUESTIONS = {
    "one trace's calls": "SELECT count() FROM calls FINAL WHERE trace_id = {trace}",
    "a class in five minutes": "SELECT count(), quantile(0.99)(exclusive_us) FROM calls FINAL "
    f"WHERE class = 'service-3 GET /resource/1/{{id}}' AND started_at {_MINUTES}",
    "all classes in five minutes": "SELECT class, sum(adjusted_count), avg(exclusive_us) FROM calls FINAL "
    f"WHERE started_at {_MINUTES} GROUP BY class",
    "edges in five minutes": "SELECT class, avg(network_us), sum(request_bytes + response_bytes) FROM edges FINAL "
    f"WHERE started_at {_MINUTES} GROUP BY class",
    "edges of one ruleset": "SELECT class, sum(adjusted_count), avg(duration_us) FROM edges FINAL "
    "WHERE ruleset_version = 31 GROUP BY class",
    "seconds of a service": "SELECT at, sum(arrivals) FROM load_parts FINAL "
    "WHERE service = 'service-2' AND at > '2026-03-01 00:50:00' GROUP BY at",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="calls")
    parser.add_argument("--ddl", type=Path, default=DDL)
    arguments = parser.parse_args()
    url = load(MigrateConfig).clickhouse_url
    with ExitStack() as ends:
        sides = [ends.enter_context(_database(url, name)) for name in ("plain", "written")]
        found = {}
        for client, is_plain in zip(sides, (True, False), strict=True):
            _create(client, arguments.ddl, is_plain)
        for table in TABLES:
            found[f"{table}, bytes per row"] = [_fill(client, table, arguments.rows) for client in sides]
        for name, sql in QUESTIONS.items():
            found |= _ask(sides, name, sql)
    for key, (plain, written) in found.items():
        print(f"{key:40} {plain:10.2f} {written:10.2f} {written / plain:7.2f}")
    print(json.dumps(found))


@contextmanager
def _database(url: str, name: str) -> Iterator[Client]:
    with Client.from_url(url) as admin:
        admin.execute(f"CREATE DATABASE storage_{name}")
        try:
            with Client.from_url(urlunsplit(urlsplit(url)._replace(path=f"/storage_{name}"))) as client:
                yield client
        finally:
            admin.execute(f"DROP DATABASE storage_{name}")


def _create(client: Client, ddl: Path, is_plain: bool) -> None:
    for migration in read_folder(ddl):
        for text in migration.statements:
            client.execute(_plain(text) if is_plain else text)


def _fill(client: Client, table: str, rows: int) -> float:
    """Bytes on disk of each row, indexes included, once all is merged."""
    columns, select = TABLES[table]
    size = rows // BATCHES
    for batch in range(BATCHES):
        client.execute(f"INSERT INTO {table} ({columns}) {select(batch * size, size, rows)}")
    client.execute(f"OPTIMIZE TABLE {table} FINAL")
    stored, count = client.execute(
        "SELECT sum(bytes_on_disk), sum(rows) FROM system.parts "
        f"WHERE active AND database = currentDatabase() AND table = '{table}'"
    )[0]
    print(f"{table}: {count} rows", file=sys.stderr)
    return stored / count


def _ask(sides: list[Client], name: str, sql: str) -> dict[str, list[float]]:
    """Returns a question's time and the rows that it reads, for each side.

    The time is the best of REPEATS runs on one thread, in ms. Rows are in thousands.
    """
    (trace,) = sides[0].execute("SELECT min(trace_id) FROM calls")[0]
    best, read = [float("inf")] * 2, [0.0] * 2
    for _ in range(REPEATS):
        for side, client in enumerate(sides):  # in turns, so that other load of the machine affects both
            begin = time.monotonic()
            client.execute(sql.replace("{trace}", f"'{trace}'"), settings={"max_threads": 1})
            best[side] = min(best[side], 1000 * (time.monotonic() - begin))
            read[side] = client.last_query.progress.rows / 1000
    return {f"{name}, ms": best, f"{name}, 1000 rows": read}


def _plain(text: str) -> str:
    text = re.sub(r" CODEC\([^)]*\)", "", text)
    return re.sub(r",([ \t]*--[^\n]*)?\n\s*INDEX [^\n,]*", r"\1", text)


if __name__ == "__main__":
    main()
