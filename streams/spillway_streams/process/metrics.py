"""GET /metrics of a job: its counters, gauges, dependencies and lag under Prometheus names.

REFERENCE.md has the table of metrics.
"""

import time
from collections.abc import Iterator

from spillway_runtime.metrics import Exposition, Family, Sample
from spillway_runtime.status import Status

from spillway_streams.process.counters import Counters
from spillway_streams.process.lag import Lag

_P = "spillway_streams_"
_PARTITION = ("topic", "partition")

FAMILIES = (
    Family(_P + "dependency_up", "1 while the dependency works, as `/readyz` says.", ("dependency",)),
    Family(_P + "consumer_lag_records", "Records of the partition that the job has not read yet.", _PARTITION),
    Family(_P + "consumer_lag_seconds", "Longest time that any of these records has waited; 0 when none waits.", _PARTITION),
    Family(_P + "newest_record_timestamp_seconds", "Kafka timestamp of the newest record that was read.", ("topic",)),
    Family(_P + "dead_letters_total", "Dead letters sent to `spillway_dead_letters`.", ("reason",)),
    Family(_P + "dead_letters_lost_total", "Dead letters that the broker refused at every size.", ("reason",)),
    Family(_P + "stored_rows_total", "Rows stored in ClickHouse, by table.", ("table",)),
    Family(_P + "refused_rows_total", "Rows that ClickHouse refused for good.", ("table",)),
    Family(_P + "rejected_spans_total", "Spans that are implausible or malformed.", ("reason",)),
    Family(_P + "admitted_messages_total", "Messages of the cluster that `admit` has copied.", ("cluster",)),
    Family(_P + "admitted_bytes_total", "Bytes of these messages, before compression.", ("cluster",)),
    Family(_P + "claims_overridden_total", "Spans, CPU readings and totals that claimed another cluster.", ("cluster",)),
    Family(_P + "errors_total", "Failed work: a fit, a decision, the open traces of a partition.", ("kind",)),
    Family(_P + "traces_total", "Traces that closed (`exclusive`)."),
    Family(_P + "counted_total", "All other counters, under their names in `/readyz`.", ("name",)),
    Family(_P + "state", "Present values, under their names in `/readyz`: partitions, open spans, keys.", ("name",)),
)  # fmt: skip

# Counters named "prefix: rest" become samples of the family of this prefix, with `rest` as label.
_LABELLED = {
    "dead_letters": "dead_letters_total",
    "dead_letters_lost": "dead_letters_lost_total",
    "stored_rows": "stored_rows_total",
    "refused_rows": "refused_rows_total",
    "rejected_spans": "rejected_spans_total",
    "admitted_messages": "admitted_messages_total",
    "admitted_bytes": "admitted_bytes_total",
    "claims_overridden": "claims_overridden_total",
}
_ERRORS = ("fits_failed", "decisions_failed", "shards_lost: internal error")


def exposition(status: Status, counters: Counters, lag: Lag) -> Exposition:
    """Returns the job's metrics; their values are read at each scrape."""

    def read() -> Iterator[Sample]:
        for dependency, is_up in status.up().items():
            yield Sample(_P + "dependency_up", is_up, (dependency,))
        for name, value in counters.snapshot().items():
            yield _counted(name, value)
        for name, gauge in counters.gauges().items():
            yield Sample(_P + "state", gauge, (name,))
        yield from _lag(lag, time.time())

    return Exposition(FAMILIES, read)


def _counted(name: str, value: int) -> Sample:
    kind, _, rest = name.partition(": ")
    if rest and kind in _LABELLED:
        return Sample(_P + _LABELLED[kind], value, (rest,))
    if name in _ERRORS:
        return Sample(_P + "errors_total", value, (kind,))
    if name == "traces":
        return Sample(_P + "traces_total", value)
    return Sample(_P + "counted_total", value, (name,))


def _lag(lag: Lag, now: float) -> Iterator[Sample]:
    for tp, records in lag.records():
        yield Sample(_P + "consumer_lag_records", records, (tp.topic, str(tp.partition)))
    for tp, seconds in lag.seconds(now):
        yield Sample(_P + "consumer_lag_seconds", seconds, (tp.topic, str(tp.partition)))
    for topic, at in lag.newest().items():
        yield Sample(_P + "newest_record_timestamp_seconds", at, (topic,))
