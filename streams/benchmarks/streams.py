"""Spans per second of one core, from OTLP bytes to rows of calls and edges. `make bench-streams`; the last line is JSON.

The input is the golden traces, repeated with trace ids of their own.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_streams import exclusive, otlp
from spillway_streams.classify import Templates
from spillway_streams.counters import Counters

GOLDEN = Path(__file__).resolve().parents[2] / "contracts/golden/1_spans.json"


def payload(copies: int) -> bytes:
    """One message with every golden span `copies` times."""
    request = ExportTraceServiceRequest()
    for resource_spans in json.loads(GOLDEN.read_text())["resourceSpans"]:
        resource = request.resource_spans.add()
        for pair in resource_spans["resource"]["attributes"]:
            resource.resource.attributes.add(key=pair["key"]).value.string_value = pair["value"][
                "stringValue"
            ]
        scope = resource.scope_spans.add()
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for copy in range(copies):
                    _add(scope.spans.add(), span, copy)
    return request.SerializeToString()


def _add(out: Span, span: dict, copy: int) -> None:
    """OTLP JSON writes ids in hexadecimal, which protobuf's own JSON does not read."""
    out.trace_id = copy.to_bytes(4, "big") + bytes.fromhex(span["traceId"])[4:]
    out.span_id = bytes.fromhex(span["spanId"])
    out.parent_span_id = bytes.fromhex(span.get("parentSpanId", ""))
    out.trace_state, out.name, out.kind = span.get("traceState", ""), span["name"], span["kind"]
    out.start_time_unix_nano = int(span["startTimeUnixNano"])
    out.end_time_unix_nano = int(span["endTimeUnixNano"])
    for pair in span["attributes"]:
        value = out.attributes.add(key=pair["key"]).value
        if "intValue" in pair["value"]:
            value.int_value = int(pair["value"]["intValue"])
        elif "doubleValue" in pair["value"]:
            value.double_value = pair["value"]["doubleValue"]
        else:
            value.string_value = pair["value"]["stringValue"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--copies", type=int, default=100)
    arguments = parser.parse_args()
    message = payload(arguments.copies)
    rates: dict[str, list[float]] = {"decode": [], "exclusive": [], "both": []}
    for _ in range(arguments.runs):
        counters = Counters()
        began = time.perf_counter()
        spans = otlp.decode(message, 1_767_225_700_000_000, counters).spans
        decoded = time.perf_counter()
        traces: dict[str, list] = {}
        for span in spans:
            traces.setdefault(span.trace_id, []).append(span)
        exclusive.calls_and_edges(list(traces.values()), Templates(counters), counters)
        ended = time.perf_counter()
        rates["decode"].append(len(spans) / (decoded - began))
        rates["exclusive"].append(len(spans) / (ended - decoded))
        rates["both"].append(len(spans) / (ended - began))
    found = {
        name: {"median": round(statistics.median(r)), "min": round(min(r)), "max": round(max(r))}
        for name, r in rates.items()
    }
    for name, row in found.items():
        print(f"{name}: {row['median']} spans/s ({row['min']} to {row['max']})", file=sys.stderr)
    print(
        json.dumps(
            {"benchmark": "streams", "spans": len(spans), "runs": arguments.runs, "spans_per_s": found}
        )
    )


if __name__ == "__main__":
    main()
