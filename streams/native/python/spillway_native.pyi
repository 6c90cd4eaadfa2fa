"""Turns OTLP payloads of one Kafka partition into the rows of whole ticks.

The rows are calls, edges, network times and raw spans. The module is native (streams/native), and
`infra/local/setup` builds it. Tick n is [n, n + 1) * tick_ms of log time (ms since the epoch). The
results of `close` are a function of the partition's log. A worker that starts again at a
commit_offset therefore repeats the same batches under the same sequences.
"""

class PayloadError(ValueError):
    """The payload is not an ExportTraceServiceRequest."""

class Buffer:
    """Read-only memory of one column. numpy.frombuffer(buffer, dtype) reads it without a copy."""

    def __len__(self) -> int:
        """Returns the length in bytes."""

class Batch:
    """The rows of one table, as columns."""

    rows: int
    dictionary: list[str]
    """Strings of all "str" columns. A column's values are indices into this list."""
    slices: list[tuple[int, int, int, int]]
    """(sequence, partition of the topic, first row, end row), in the order of the rows.

    A sequence is tick << 10 | chunk. A chunk has at most 20 000 rows. The sequence of arrivals is
    the chunk alone, because arrivals have no tick. The list is empty for raw spans.
    """
    columns: list[str]
    """Names of the columns."""

    def column(self, name: str) -> tuple[str, Buffer]:
        """Returns the kind and the values of a column.

        Kinds are "i64", "u64" and "f64" (8 bytes each), "bool" (u8), "str" (u32 indices into
        `dictionary`) and "hex". A "hex" column has the same number of ASCII digits in each row: 32
        for trace_id, 16 for span_id and parent_id. An absent id is written as NUL bytes.

        started_at is i64, in Unix microseconds. network_us is i64; -1 means unknown. Raises
        KeyError, which names the columns, for any other name.
        """

class Closed:
    """Everything that closed in one or more whole ticks."""

    calls: Batch
    edges: Batch
    network: Batch
    spans: Batch
    commit_offset: int | None
    """Offset to commit once all these rows are stored.

    Messages with smaller offsets are done, and the message at this offset is read again after a
    restart. None: commit nothing yet.
    """
    traces: int
    """Number of traces that closed."""

class Partition:
    """The state of one worker that reads a partition of otlp_spans.

    Calls from several threads wait for each other. Reading an attribute never waits. Its value is
    that of the end of the last call.
    """

    open_spans: int
    """Number of held spans.

    They are the spans of open traces, of the tick that is being filled, and closed ones that are
    not yet returned.
    """
    known_traces: int
    """Number of traces that are remembered, so that repeats of their spans are dropped."""
    clock_ms: int
    """Log time of the partition in ms; 0 before the first message."""
    overridden: int
    """Number of spans in the last added message that claimed another cluster than `cluster`.

    0 if the message was read for warm-up.
    """

    def __init__(
        self,
        *,
        first_offset: int,
        log_start: bool,
        partitions: int,
        window_ms: int = 2_000,
        hold_ms: int = 10_000,
        life_ms: int = 30_000,
        remember_ms: int = 60_000,
        tick_ms: int = 500,
        max_trace_spans: int = 20_000,
        max_tick_spans: int = 80_000,
        classes_per_service: int = 200,
        span_sample: float = 0.01,
        hot_ms: int = 10_000,
        follows_ms: int | None = None,
    ) -> None:
        """Creates a worker that reads from `first_offset`.

        `log_start`: the log begins at `first_offset`. `partitions`: number of partitions of the
        topics that rows go to. `follows_ms`: horizon (life + hold + remember) of the worker that
        committed `first_offset`, if known. The new worker answers for all ticks from one such
        horizon after that message on, even if its own horizon is longer. None: the predecessor had
        the same horizon.

        Times must be whole ticks, with tick <= window <= hold <= life <= remember. Raises
        ValueError, which names every value that is not allowed.
        """

    def set_rules(self, rules: list[tuple[int, str, str, str, str, str]]) -> None:
        """Replaces all class rules.

        A rule is a row of class_rules: (effective_from in ms, service, method, template, becomes,
        kind). Raises ValueError for an unknown kind, and then keeps the previous rules.
        """

    def add(
        self,
        payload: bytes,
        offset: int,
        timestamp_ms: int,
        now_ms: int | None = None,
        cluster: str | None = None,
    ) -> list[tuple[str, bytes, int]]:
        """Adds a message and returns the spans that were rejected.

        The result lists (reason, an ExportTraceServiceRequest with only these spans, their number).
        Offsets must increase. A message that was read before is ignored and counted as
        message_repeated. The spans of a message count as arrivals if it is younger than hot_ms at
        `now_ms` (default: the wall clock). With `cluster`, all spans belong to this cluster,
        whatever they claim. With None, they belong to the cluster that they name.

        Raises PayloadError if the payload does not decode. None of its spans is kept, but the clock
        has advanced.
        """

    def advance(self, now_ms: int) -> None:
        """Advances the clock of an idle partition.

        The partition must have nothing more to read, and later messages must not be earlier than
        `now_ms`. The clock never goes back. Before the first message, this does nothing.
        """

    def arrivals(self) -> Batch:
        """Returns sums of the server spans that have just ended, since the last call.

        A service is stamped if one of its spans carried the requests in flight within the last 10 s
        of log time. For such a service, only spans that carry them count (others are counted as
        arrival_beside_stamped). For any other service, a span counts unless its parent is a server
        span of the same service in the same message (counted as arrival_within_another).
        """

    def close(self, max_rows: int = 400_000) -> Closed | None:
        """Returns the rows of ended ticks that were not returned yet, oldest first.

        Adds whole ticks, at least one, until they have `max_rows` calls and edges or no tick is
        left. The result has no rows if nothing closed in these ticks. Returns None if no tick has
        ended.
        """

    def counters(self) -> dict[str, int]:
        """Returns counts of odd input by reason, since the last call.

        During warm-up, a worker counts messages: those that it reads for warm-up
        (message_for_warm_up), those behind the clock, and those that were read before. It does not
        count what is odd in their spans, because its predecessor has counted that. The exception
        is arrivals of the last seconds, which it examines again.
        """

def tracestate(probability: float) -> str:
    """Returns the W3C tracestate of a trace that was kept with this probability.

    Raises ValueError unless 2**-20 <= probability <= 1. No span is believed to stand for more
    requests than that.
    """

def partition_of(service: str, partitions: int) -> int:
    """Returns the partition of a service in every topic that is spread by service.

    Raises ValueError for 0 partitions.
    """
