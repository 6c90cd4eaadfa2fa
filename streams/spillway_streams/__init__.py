"""Spans to calls to curves, as Faust jobs. Knows nothing of the optimizer and of rules.

StreamsError
├── columns.ColumnsError      a batch that has not the columns of its schema
└── otlp.PayloadError         a payload that does not decode
"""


class StreamsError(ValueError):
    """Input that this package cannot use; the message says what and why."""
