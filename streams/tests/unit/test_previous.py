"""One version of skew: the previous version's messages are read, and additions of the next one."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts import names
from spillway_native import Partition
from spillway_streams.batches import columns, native_batch, positions
from spillway_streams.load import cpu

[PREVIOUS] = (Path(__file__).resolve().parents[3] / "contracts" / "golden" / "previous").iterdir()
SCHEMAS = {
    "calls": columns.CALLS,
    "edges": columns.EDGES,
    "network": columns.NETWORK,
    "arrivals": columns.ARRIVALS,
}
READ_MS = 1_767_225_640_000


def calls_and_edges(payload: bytes) -> tuple[columns.Columns, columns.Columns]:
    partition = Partition(first_offset=0, log_start=True, partitions=1)
    assert partition.add(payload, 0, timestamp_ms=READ_MS) == []
    partition.advance(READ_MS + 200_000)
    closed = partition.close()
    found = []
    for schema, batch in ((columns.CALLS, closed.calls), (columns.EDGES, closed.edges)):
        found.append(native_batch.as_python(schema, native_batch.read(schema, batch)))
    return found[0], found[1]


def only_row(batch: columns.Columns, *fields: str) -> tuple:
    assert columns.length(batch) == 1
    return tuple(batch[name].tolist()[0] for name in fields)


def test_spans_of_the_filter_and_the_collector():
    """A filter's spans, as its collector wrote them to Kafka, give their call and their edge."""
    calls, edges = calls_and_edges((PREVIOUS / "otlp_spans.binpb").read_bytes())
    fields = ("cluster", "service", "class", "source_cluster", "source_service", "duration_us", "exclusive_us",
              "in_flight", "class_in_flight", "arrival_rate", "response_bytes", "status")  # fmt: skip
    assert only_row(calls, *fields) == ("west", "shop", "shop GET /items/{id}", "east", "front", 60_000, 20_000,
                                        7, 7, 12.5, 70_000, 200)  # fmt: skip
    fields = (
        "source_cluster",
        "source_class",
        "destination_cluster",
        "class",
        "network_us",
        "ruleset_version",
    )
    assert only_row(edges, *fields) == (
        "west",
        "shop GET /items/{id}",
        "east",
        "store GET /items/{id}",
        25_000,
        42,
    )


def test_attributes_and_fields_that_are_added_to_spans_change_nothing():
    """A newer filter's attribute, and a field that OTLP does not have today, are ignored."""
    payload = (PREVIOUS / "otlp_spans.binpb").read_bytes()
    request = ExportTraceServiceRequest.FromString(payload)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.attributes.add(key="spillway.added_tomorrow").value.int_value = 1
    added = request.SerializeToString() + b"\xfa\x3f\x01x"  # field 1023, length-delimited
    for today, tomorrow in zip(calls_and_edges(payload), calls_and_edges(added), strict=True):
        assert {k: v.tolist() for k, v in today.items()} == {k: v.tolist() for k, v in tomorrow.items()}


def test_cpu_of_the_kubelet_receiver(counters):
    """The receiver's reading is the point of the pod that has a limit."""
    points = cpu.decode((PREVIOUS / "otlp_metrics.binpb").read_bytes(), counters)
    assert [(p.cluster, p.service, p.pod, p.utilisation) for p in points] == [
        ("west", "cart", "cart-5d9c7b6f4-x2x8v", 0.5)
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_batches_of_inner_topics(name):
    """A batch of each inner topic has its writer's values, and its identity is recognised."""
    schema, payload = SCHEMAS[name], (PREVIOUS / f"{name}.arrow").read_bytes()
    expected = json.loads((PREVIOUS / "expected.json").read_text())[name]
    batch = columns.from_ipc(schema, payload)
    assert columns.length(batch) > 0
    assert {column: batch[column].tolist() for column in expected} == expected
    assert not any(batch[column].any() for column in schema.keys() - expected.keys())
    headers = json.loads((PREVIOUS / "headers.json").read_text())[name]
    as_read = [(key, value.encode()) for key, value in headers.items()]
    found = positions.identify(f"spillway_{name}", 1, as_read, READ_MS / 1000)
    assert (found.source, found.sequence) == (3, int(headers[names.KAFKA_HEADER_SEQUENCE]))


@pytest.mark.parametrize("name", SCHEMAS)
def test_columns_that_are_added_are_passed_over(name):
    """A column that a later writer adds, at any position, changes nothing for today's reader."""
    schema, payload = SCHEMAS[name], (PREVIOUS / f"{name}.arrow").read_bytes()
    table = pa.ipc.open_stream(payload).read_all()
    plain = {column: values.tolist() for column, values in columns.from_ipc(schema, payload).items()}
    for place in (0, len(table.column_names)):
        wider = table.add_column(place, "added_tomorrow", pa.array(["x"] * len(table)))
        written = columns.write(wider.combine_chunks().to_batches()[0])
        assert {k: v.tolist() for k, v in columns.from_ipc(schema, written).items()} == plain


@pytest.mark.parametrize("name", SCHEMAS)
def test_our_batches_are_readable_by_the_previous_version(name):
    """Our batches have every column that the previous version reads, with the same type."""
    before = pa.ipc.open_stream((PREVIOUS / f"{name}.arrow").read_bytes()).schema
    now = columns.arrow_schema(SCHEMAS[name])
    assert {f.name: f.type for f in before}.items() <= {f.name: f.type for f in now}.items()


def test_dead_letters_keep_their_headers():
    """The headers of a dead letter state where it was read and why, under today's names."""
    letter = json.loads((PREVIOUS / "dead_letter.json").read_text())
    assert letter["headers"] == {
        names.KAFKA_HEADER_DEAD_LETTER_REASON: "not protobuf",
        names.KAFKA_HEADER_DEAD_LETTER_TOPIC: "otlp_spans",
        names.KAFKA_HEADER_DEAD_LETTER_PARTITION: "2",
        names.KAFKA_HEADER_DEAD_LETTER_OFFSET: "77",
    }
    assert letter["value"] == "fffe"
