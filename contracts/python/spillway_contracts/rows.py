"""Generated from contracts/rows.yaml by `make generate`. Do not edit."""

# a served request, with its exclusive time and the load that it met
CALLS = {
    "started_at": "time",
    "trace_id": "id",
    "span_id": "id",
    "cluster": "str",
    "service": "str",
    "class": "str",
    "source_cluster": "str",
    "source_service": "str",
    "duration_us": "u64",
    "exclusive_us": "u64",
    "in_flight": "u64",
    "arrival_rate": "f64",
    "request_bytes": "u64",
    "response_bytes": "u64",
    "status": "u64",
    "failed": "bool",
    "adjusted_count": "f64",
    "class_in_flight": "u64",
    "class_arrival_rate": "f64",
    "trace_spans": "u64",
}

# a call from one service to another
EDGES = {
    "started_at": "time",
    "trace_id": "id",
    "span_id": "id",
    "source_cluster": "str",
    "source_service": "str",
    "source_class": "str",
    "destination_cluster": "str",
    "destination_service": "str",
    "class": "str",
    "duration_us": "u64",
    "network_us": "opt",
    "request_bytes": "u64",
    "response_bytes": "u64",
    "status": "u64",
    "failed": "bool",
    "adjusted_count": "f64",
    "ruleset_version": "u64",
    "trace_spans": "u64",
    "source_call": "u64",
}

# a raw span of a sampled trace
SPANS = {
    "started_at": "time",
    "trace_id": "id",
    "span_id": "id",
    "parent_id": "id",
    "kind": "str",
    "name": "str",
    "cluster": "str",
    "service": "str",
    "class": "str",
    "duration_us": "u64",
    "status": "u64",
    "failed": "bool",
}

# sums over the server spans of a class that ended in one second
ARRIVALS = {
    "at": "i64",
    "newest_us": "i64",
    "cluster": "str",
    "service": "str",
    "class": "str",
    "entry": "bool",
    "calls": "f64",
    "failed": "f64",
    "ok": "f64",
    "duration_ok_ms": "f64",
    "stamped": "f64",
    "in_flight": "f64",
    "rate": "f64",
    "class_stamped": "f64",
    "class_in_flight": "f64",
    "class_rate": "f64",
    "samples": "f64",
}

# sums over the calls between two clusters that started in one second, by bucket
NETWORK = {
    "at": "i64",
    "source_cluster": "str",
    "destination_cluster": "str",
    "bucket": "i64",
    "calls": "f64",
    "time_us": "f64",
}

# columns that are 0 in rows of the previous version, which does not write them
ADDED = frozenset({"source_call"})
