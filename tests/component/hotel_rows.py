"""Rows of the hotel traces, made by the pipeline's own pure code and stored in ClickHouse."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from clickhouse_driver import Client
from hotel import HOME, cluster_of, traces
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts import names
from spillway_native import Batch, Closed, Partition
from spillway_streams.batches import columns, native_batch
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.load import load
from spillway_streams.recorded import jaeger

SOURCE, PARTITIONS, SPAN_SAMPLE = 3, 4, 0.1
_READ_AT_MS = 1_800_000_000_000


def store(client: Client) -> None:
    """Stores calls, edges, spans, and the parts that the jobs compute from them."""
    for closed in _closed():
        for table, schema, batch in (
            ("calls", columns.CALLS, closed.calls),
            ("edges", columns.EDGES, closed.edges),
            ("spans", columns.SPANS, closed.spans),
        ):
            rows = native_batch.as_python(schema, native_batch.read(schema, batch))
            _insert(client, table, list(schema), columns.to_clickhouse(schema, rows))
        for identity, rows in _slices(columns.CALLS, closed.calls):
            _insert_parts(
                client, "load_parts", list(load.LOAD_PARTS), load.parts_of(rows).columns(), identity
            )
        for identity, rows in _slices(columns.NETWORK, closed.network):
            values = columns.to_clickhouse(columns.NETWORK, rows)
            _insert_parts(client, "network_parts", list(columns.NETWORK), values, identity)


def _closed() -> Iterator[Closed]:
    """Yields every closed trace.

    They are read from one partition, whose clock then advances until all are closed.
    """
    engine = Partition(first_offset=0, log_start=True, partitions=PARTITIONS, span_sample=SPAN_SAMPLE)
    for offset, request in enumerate(requests()):
        assert not engine.add(request.SerializeToString(), offset, _READ_AT_MS + offset)
    engine.advance(_READ_AT_MS + 3_600_000)
    while closed := engine.close():
        yield closed


def _slices(schema: Schema, batch: Batch) -> Iterator[tuple[tuple[int, int, int], Columns]]:
    """Yields ((partition, source, sequence), rows) for each message of the batch."""
    rows = native_batch.read(schema, batch)
    for sequence, partition, first, end in batch.slices:
        yield (partition, SOURCE, sequence), columns.take(rows, np.arange(first, end))


def requests() -> list[ExportTraceServiceRequest]:
    """Returns one export per trace, with the clusters in which its services ran."""
    found = []
    for _, trace in traces():
        request = jaeger.convert(trace, HOME)
        for resource_spans in request.resource_spans:
            attributes = {a.key: a.value for a in resource_spans.resource.attributes}
            service = attributes[names.SPAN_ATTRIBUTE_SERVICE].string_value
            attributes[names.SPAN_ATTRIBUTE_CLUSTER].string_value = cluster_of(trace, service)
        found.append(request)
    return found


def _insert_parts(
    client: Client, table: str, fields: list[str], values: list[list], identity: tuple[int, int, int]
) -> None:
    given = [[value] * len(values[0]) for value in identity]
    _insert(client, table, [*fields, "partition", "source", "sequence"], [*values, *given])


def _insert(client: Client, table: str, fields: list[str], values: list[list]) -> None:
    lists = [column if isinstance(column, list) else column.tolist() for column in values]
    client.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES", lists, columnar=True)


@contextmanager
def also(client: Client, table: str, names: Sequence[str], rows: list[tuple], which: str) -> Iterator[None]:
    """Inserts rows for the duration of the block. `which` is the condition that identifies them."""
    client.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES", rows)
    try:
        yield
    finally:
        client.execute(f"ALTER TABLE {table} DELETE WHERE {which}", settings={"mutations_sync": 1})
