"""Inner topics' batches of the golden spans, boards, a dead letter, and rows for ClickHouse."""

import asyncio
import importlib.util
import json
import os
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace

from spillway_contracts import names
from spillway_native import Closed, Partition
from spillway_streams.batches import columns, native_batch, positions
from spillway_streams.classes.findings import COLUMNS as FINDINGS
from spillway_streams.classes.findings import KEPT, Finding
from spillway_streams.classes.rules import COLUMNS as RULES
from spillway_streams.classes.rules import Rule
from spillway_streams.clients.dead_letters import DeadLetters, Origin
from spillway_streams.graph import callgraph
from spillway_streams.ingest import outputs
from spillway_streams.jobs.batches import parts_columns
from spillway_streams.load import cpu, load
from spillway_streams.model import modelling
from spillway_streams.process.counters import Counters
from spillway_streams.recorded import offline
from spillway_streams.recorded.otlp import otlp_request

OUT, TREE = Path(os.environ["SPILLWAY_PREVIOUS"]), Path(os.environ["SPILLWAY_TREE"])
_spec = importlib.util.spec_from_file_location("golden", TREE / "streams" / "golden.py")
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)
TOPICS = {
    "calls": (columns.CALLS, names.KAFKA_TOPIC_CALLS),
    "edges": (columns.EDGES, names.KAFKA_TOPIC_EDGES),
    "network": (columns.NETWORK, names.KAFKA_TOPIC_NETWORK),
    "arrivals": (columns.ARRIVALS, names.KAFKA_TOPIC_ARRIVALS),
}


def plain(schema: columns.Schema, batch: columns.Columns) -> dict[str, list]:
    return {name: batch[name].tolist() for name in schema}


def batches() -> Closed:
    """<topic>.arrow, their headers, and in expected.json what they say. Returns what closed."""
    spans = json.loads((TREE / "contracts/golden/1_spans.json").read_text())
    engine = Partition(first_offset=0, log_start=True, partitions=1, span_sample=1.0)
    engine.add(otlp_request(spans).SerializeToString(), 0, timestamp_ms=golden.READ_MS, now_ms=golden.READ_MS)
    arrivals = engine.arrivals()
    engine.advance(golden.READ_MS + offline.HORIZON_MS)
    closed = engine.close()
    headers, expected = {}, {}
    for name, (schema, topic) in TOPICS.items():
        batch = arrivals if name == "arrivals" else getattr(closed, name)
        rows = native_batch.read(schema, batch)
        first = next(iter(outputs.to_messages(schema, topic, 3, batch, rows)))
        (OUT / f"{name}.arrow").write_bytes(first.value)
        headers[name] = {key: value.decode() for key, value in first.headers}
        expected[name] = plain(schema, columns.from_ipc(schema, first.value))
    (OUT / "headers.json").write_text(json.dumps(headers, indent=1) + "\n")
    (OUT / "expected.json").write_text(
        json.dumps(expected).replace('"calls"', '\n"calls"').replace("], ", "],\n") + "\n"
    )
    return closed


class Kept:
    """Stands where Kafka is: keeps what is sent."""

    def __init__(self) -> None:
        self.messages = []

    async def send(self, message) -> None:
        self.messages.append(message)


def dead_letter() -> None:
    kept = Kept()
    letters = DeadLetters(kept, Counters(), 1_000_000)
    asyncio.run(
        letters.send(Origin(names.KAFKA_TOPIC_OTLP_SPANS, 2, 77), "undecodable", "not protobuf", b"\xff\xfe")
    )
    [message] = kept.messages
    found = {"value": message.value.hex(), "headers": {key: value.decode() for key, value in message.headers}}
    (OUT / "dead_letter.json").write_text(json.dumps(found, indent=1) + "\n")


def statement(table: str, names_) -> str:
    return f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in names_)}) VALUES"


def by_columns(closed: Closed) -> list[list]:
    """What is written column by column: spans, and parts per second with their batch's identity."""
    read = {name: columns.from_ipc(TOPICS[name][0], (OUT / f"{name}.arrow").read_bytes()) for name in TOPICS}
    tables = {"spans": native_batch.read(columns.SPANS, closed.spans)}
    for table, names_, parts in (
        ("load_parts", load.LOAD_PARTS, load.parts_of(read["calls"])),
        ("edge_parts", callgraph.EDGE_PARTS, callgraph.edge_parts(read["edges"])),
        ("network_parts", callgraph.NETWORK_PARTS, callgraph.network_parts(read["network"])),
    ):
        taken = SimpleNamespace(rows=parts, batch=("topic", 0, 3, 77))
        [tables[table]] = parts_columns([taken], names_)
    return [
        [statement(table, of), [[plainly(cell) for cell in row] for row in zip(*first(of), strict=True)]]
        for table, of in tables.items()
    ]


def first(of: columns.Columns) -> list[list]:
    return [column.tolist()[:3] for column in of.values()]


def plainly(cell: object) -> object:
    """Ids are bytes until they are written."""
    return bytes(cell).rstrip(b"\0").decode() if isinstance(cell, list) else cell


def class_rows() -> list[list]:
    at = 1_767_225_630_000
    rule = Rule(at, at + 60_000, "shop", "GET", "/items/*", "/items/{id}", "merged", reason="alike")
    far = 4_000_000_000_000  # of findings the TTL counts from found_at
    finding = Finding(far, "shop", "shop GET /items/{id}", KEPT, "differs", 42.0, 40, 0.0)
    return [
        [statement("class_rules", RULES), [list(astuple(rule))]],
        [statement("class_findings", FINDINGS), [list(astuple(finding))]],
    ]


def rows(closed: Closed) -> None:
    """Writes boards as in Redis, and statements with rows as in ClickHouse.

    Columns for which this run makes no row are absent.
    """
    document = golden.calls_document(json.loads((TREE / "contracts/golden/1_spans.json").read_text()))
    model = golden.model_document(json.loads(json.dumps(document)))
    boards = {name: model[name] for name in ("load", "demand", "network")}
    (OUT / "redis_streams.json").write_text(json.dumps(boards, indent=1) + "\n")
    tables = {
        "calls": (tuple(columns.CALLS), document["calls"]),
        "edges": (tuple(columns.EDGES), document["edges"]),
        "curves": (modelling.CURVES, model["curves"]),
        "capacities": (modelling.CAPACITIES, model["capacities"]),
        "call_ratios": (callgraph.CALL_RATIOS, model["call_ratios"]),
        "network_times": (callgraph.NETWORK_TIMES, model["network_times"]),
        "cpu_1s": (
            cpu.CPU_1S,
            [dict(zip(cpu.CPU_1S, (1_767_225_616, "west", "shop", "shop-0", 0.5), strict=True))],
        ),
        "buckets": (
            modelling.BUCKETS,
            [
                dict(
                    zip(
                        modelling.BUCKETS,
                        (1_767_225_600, "west", "shop", "shop GET /", 3, 27, 9.4, 41.5, 70.1),
                        strict=True,
                    )
                )
            ],
        ),
        "positions": (
            positions.POSITIONS,
            [dict(zip(positions.POSITIONS, ("curves", "spillway_calls", 0, 3, 77), strict=True))],
        ),
    }
    inserts = [
        *by_columns(closed),
        *class_rows(),
    ] + [
        [
            statement(table, names_),
            [[row[name] for name in names_] for row in made[:3]],
        ]
        for table, (names_, made) in tables.items()
    ]
    (OUT / "inserts_streams.json").write_text(json.dumps(inserts, default=str, indent=1) + "\n")


closed = batches()
dead_letter()
rows(closed)
