"""OTLP payloads of one Kafka partition -> calls, edges, network times and raw spans of whole ticks.

Native (streams/native); `infra/local/setup` builds it. A tick n is [n, n + 1) * tick_ms of log time (ms since the
epoch). What `close` returns is a function of the partition's log: a worker that starts again at a commit_offset
repeats the same batches under the same sequences.
"""

class PayloadError(ValueError):
    """The payload is no ExportTraceServiceRequest."""

class Buffer:
    """Read-only memory of one column (buffer protocol, no copy): numpy.frombuffer(buffer, dtype)."""

    def __len__(self) -> int:
        """Bytes."""

class Batch:
    rows: int
    dictionary: list[str]
    """Texts of all "str" columns, by code."""
    slices: list[tuple[int, int, int, int]]
    """(sequence, partition of the topic, first row, end row); the rows lie in this order. Sequence:
    tick << 10 | chunk, of at most 20 000 rows. Empty for raw spans; arrivals have no tick: the chunk alone."""
    columns: list[str]

    def column(self, name: str) -> tuple[str, Buffer]:
        """Kind and values: "i64", "u64", "f64" (8 bytes each), "bool" (u8), "str" (u32 codes of `dictionary`),
        "hex" (ASCII digits, the same number per row: trace_id 32, span_id and parent_id 16; NUL bytes: none).
        started_at is i64, Unix microseconds; network_us is i64, -1 for none. KeyError names the columns."""

class Closed:
    """Everything that closed in some whole ticks."""

    calls: Batch
    edges: Batch
    network: Batch
    spans: Batch
    commit_offset: int | None
    """Once all this is stored: messages with a smaller offset are done, this one stays uncommitted. None: commit
    nothing yet."""
    traces: int

class Partition:
    """One partition of otlp_spans. Calls from several threads wait for each other, the attributes for nobody: they
    are as of the last call that ended."""

    open_spans: int
    """Spans held: of open traces, of the tick being filled, closed and not yet returned."""
    known_traces: int
    """Traces remembered, so that repeats of their spans are dropped."""
    clock_ms: int
    """0 before the first message."""
    overridden: int
    """Spans of the last message added that claimed to be of another cluster than `cluster`; 0 while warming up."""

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
        """Reading begins at `first_offset`; `log_start`: it is the log's first. `partitions`: of the topics that
        rows go to. Times are whole ticks, tick <= window <= hold <= life <= remember; ValueError names every
        value that is not allowed. `follows_ms`: horizon (life + hold + remember) of whoever committed `first_offset`,
        if known: what is due from there on is ours to tell, however long our own horizon is."""

    def set_rules(self, rules: list[tuple[int, str, str, str, str, str]]) -> None:
        """All rows of class_rules: (effective_from ms, service, method, template, becomes, kind). ValueError for
        an unknown kind; then the rules are as before."""

    def add(
        self,
        payload: bytes,
        offset: int,
        timestamp_ms: int,
        now_ms: int | None = None,
        cluster: str | None = None,
    ) -> list[tuple[str, bytes, int]]:
        """Takes a message in; offsets rise (one that was read before is ignored, counted message_repeated).

        Returns what was rejected: (reason, an ExportTraceServiceRequest of just these spans, how many). Its spans
        count as arrivals when it is younger than hot_ms at now_ms (default: the wall clock). `cluster`: all spans
        are of this cluster, whatever they claim; None: of the cluster that they name.
        PayloadError: nothing of it is kept, but the clock moved."""

    def advance(self, now_ms: int) -> None:
        """Nothing more is to be read, and what comes will be later than this. Never goes back; before the first
        message it does nothing."""

    def arrivals(self) -> Batch:
        """Sums of server spans that just ended, since the last call: of a service whose spans carried requests in
        flight within the last 10 s of log time only those that do (others: arrival_beside_stamped), else those
        without a server span of their service as parent in the message (others: arrival_within_another)."""

    def close(self, max_rows: int = 400_000) -> Closed | None:
        """The ticks that ended and were not returned, oldest first, up to the one that brings calls and edges to
        max_rows (at least one tick). Without rows when nothing closed; None when no tick ended."""

    def counters(self) -> dict[str, int]:
        """What was odd, by reason, since the last call. While a worker warms up it counts messages: those that it reads
        for that (message_for_warm_up), that are behind the clock or that were read. What is in them its predecessor has
        counted; only arrivals of the last seconds are looked at again."""

def tracestate(probability: float) -> str:
    """ValueError unless 2**-20 <= probability <= 1: thinner sampling is not believed."""

def partition_of(service: str, partitions: int) -> int:
    """The partition in which a service lies, of every topic that is spread by service. ValueError for 0 partitions."""
