"""Turns spans into calls and calls into load curves, as Faust jobs.

This package knows nothing about the optimizer or about routing rules. Its exceptions:

StreamsError
├── batches.blocks.UnsupportedType        a column type of a table that we do not write
├── batches.columns.ColumnsError          a batch that does not have the columns of its schema
├── batches.marks.MarkError               a mark header that cannot be read
├── batches.parts.AbsurdRows              rows that decode but cannot be true
├── batches.positions.HeaderError         a message whose headers do not identify its batch
├── batches.sifting.RefusedRows           rows that ClickHouse will never accept
├── classes.pattern.PatternError          a template that Envoy or the rules cannot express
├── clients.sending.TooLargeError         a message that the broker will never accept
├── ingest.admission.UnadmittedError      a message that the job `admit` did not write
├── load.attributes.PayloadError          a payload that does not decode
├── process.cluster_topics.ClustersError  cluster names that topics cannot be named after
├── recorded.clusters.TraceFileError      recorded traces that are unreadable or of no known cluster
├── recorded.jaeger.JaegerError           a file that is not Jaeger UI JSON
└── topics.declared.TopicsError           topics that are not as the jobs need them
"""


class StreamsError(ValueError):
    """Input that this package cannot use. The message says what is wrong and why."""
