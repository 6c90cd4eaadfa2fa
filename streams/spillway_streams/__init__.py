"""Spans to calls to curves, as Faust jobs. Knows nothing of the optimizer and of rules.

StreamsError
├── attributes.PayloadError   a payload that does not decode
├── blocks.UnsupportedType    a table's column of a type that we do not write
├── columns.ColumnsError      a batch that has not the columns of its schema
├── offline_clusters.TraceFileError   recorded traces that cannot be read, or are of no known cluster
├── sending.TooLargeError     a message that the broker will never take
├── sifting.RefusedRows       rows that ClickHouse will never take
└── topics.TopicsError        topics that exist otherwise than the jobs need them
"""


class StreamsError(ValueError):
    """Input that this package cannot use; the message says what and why."""
