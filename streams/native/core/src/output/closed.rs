//! Writes the rows of whole ticks into batches, ordered and cut in the same way in every process.

use crate::memory::names::{Names, Sym};
use crate::memory::texts::Texts;
use crate::output::columns::{Batch, Dictionary, Sheet, Table, put_hex, table};
use crate::output::network::{self, partition_of};
use crate::output::rows::{CallRow, EdgeRow, Rows};
use crate::span::{self, Span};

table!(
    /// Columns of a batch of calls.
    Calls {
        started_at "started_at": I64,
        trace_id "trace_id": Hex,
        span_id "span_id": Hex,
        cluster "cluster": Text,
        service "service": Text,
        class "class": Text,
        source_cluster "source_cluster": Text,
        source_service "source_service": Text,
        duration_us "duration_us": U64,
        exclusive_us "exclusive_us": U64,
        in_flight "in_flight": U64,
        arrival_rate "arrival_rate": F64,
        request_bytes "request_bytes": U64,
        response_bytes "response_bytes": U64,
        status "status": U64,
        failed "failed": Bool,
        adjusted_count "adjusted_count": F64,
        class_in_flight "class_in_flight": U64,
        class_arrival_rate "class_arrival_rate": F64,
        trace_spans "trace_spans": U64,
    }
);

table!(
    /// Columns of a batch of edges.
    Edges {
        started_at "started_at": I64,
        trace_id "trace_id": Hex,
        span_id "span_id": Hex,
        source_cluster "source_cluster": Text,
        source_service "source_service": Text,
        source_class "source_class": Text,
        destination_cluster "destination_cluster": Text,
        destination_service "destination_service": Text,
        class "class": Text,
        duration_us "duration_us": U64,
        network_us "network_us": I64,
        request_bytes "request_bytes": U64,
        response_bytes "response_bytes": U64,
        status "status": U64,
        failed "failed": Bool,
        adjusted_count "adjusted_count": F64,
        ruleset_version "ruleset_version": U64,
        trace_spans "trace_spans": U64,
        source_call "source_call": U64,
    }
);

/// Everything that closed in some whole ticks. The rows of a slice are ordered by (started_at,
/// trace_id, span_id).
#[derive(Debug, Default)]
pub struct Closed {
    pub calls: Batch,
    pub edges: Batch,
    pub network: Batch,
    /// Spans of the sampled traces, without slices.
    pub spans: Batch,
    pub last_tick: i64,
    /// Offset to commit once everything here is stored. Messages with a smaller offset are then
    /// done.
    pub commit_offset: Option<i64>,
    pub traces: u64,
}

/// The spans of a tick, and the context that their rows need.
pub(crate) struct Tick<'a> {
    pub number: i64,
    pub spans: &'a [Span],
    pub partitions: u32,
    pub names: &'a Names,
}

/// The batches under construction.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    calls: Sheet<Calls>,
    edges: Sheet<Edges>,
    network: Sheet<network::Network>,
    sums: network::Sums,
}

impl Writer {
    /// Number of calls and edges so far.
    pub fn rows(&self) -> usize {
        self.calls.batch.rows + self.edges.batch.rows
    }

    /// Appends a tick's rows.
    pub fn write(&mut self, tick: &Tick, rows: &Rows, texts: &mut Texts) {
        let Self { calls, edges, network, sums } = self;
        let span = |at: u32| &tick.spans[at as usize];
        let place = |row: &CallRow| (span(row.span), span(row.span).service);
        write(calls, tick, &rows.calls, place, texts, |table, dictionary, row| {
            table.put(row, span(row.span), rows.asked.resolve(row.class), dictionary);
        });
        let place = |row: &EdgeRow| (span(row.span), row.source_service);
        write(edges, tick, &rows.edges, place, texts, |table, dictionary, row| {
            let classes = [row.source_class, row.class].map(|class| rows.asked.resolve(class));
            let span = span(row.span);
            table.put(row, span, classes, dictionary);
            if let Ok(time_us) = u64::try_from(row.network_us) {
                let pair = (row.source_cluster, row.destination_cluster);
                sums.add(pair.0, pair.1, span.started_us, time_us, span.adjusted_count);
            }
        });
        sums.write(tick.number, tick.partitions, tick.names, network);
    }

    /// Finishes the batches. The caller fills in `last_tick`, `commit_offset` and `traces`.
    pub fn finish(self, spans: Batch, names: &Names) -> Closed {
        Closed {
            calls: self.calls.finish(names),
            edges: self.edges.finish(names),
            network: self.network.finish(names),
            spans,
            ..Closed::default()
        }
    }
}

/// Appends a tick's rows of one table by partition, then by (started_at, trace_id, span_id).
///
/// `place` returns a row's span and the service that decides its partition.
fn write<'a, T: Table, R>(
    sheet: &mut Sheet<T>,
    tick: &Tick<'a>,
    rows: &[R],
    place: impl Fn(&R) -> (&'a Span, Sym),
    texts: &mut Texts,
    mut put: impl FnMut(&mut T, &mut Dictionary, &R),
) {
    let Sheet { table, batch, dictionary } = sheet;
    table.reserve(rows.len());
    let mut order: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let (span, service) = place(row);
            (partition_of(texts.hash(tick.names, service), tick.partitions), span.started_us, at as u32)
        })
        .collect();
    order.sort_unstable_by(|a, b| {
        let mut tie = || {
            let [a, b] = [a, b].map(|(.., at)| place(&rows[*at as usize]).0);
            span::order(a, b, tick.names, texts)
        };
        (a.0, a.1).cmp(&(b.0, b.1)).then_with(&mut tie)
    });
    for same in order.chunk_by(|a, b| a.0 == b.0) {
        let start = batch.rows;
        same.iter().for_each(|(.., at)| put(table, dictionary, &rows[*at as usize]));
        batch.rows += same.len();
        batch.slice(tick.number, same[0].0, start);
    }
}

impl Calls {
    fn put(&mut self, row: &CallRow, span: &Span, class: Sym, dictionary: &mut Dictionary) {
        self.started_at.push(span.started_us);
        put_hex(span.trace_id.to_be_bytes(), &mut self.trace_id);
        put_hex(span.span_id.to_be_bytes(), &mut self.span_id);
        self.cluster.push(dictionary.code(span.cluster));
        self.service.push(dictionary.code(span.service));
        self.class.push(dictionary.code(class));
        self.source_cluster.push(dictionary.code(row.source_cluster));
        self.source_service.push(dictionary.code(row.source_service));
        self.duration_us.push(span.duration_us as u64);
        self.exclusive_us.push(row.exclusive_us);
        self.in_flight.push(u64::from(span.in_flight));
        self.arrival_rate.push(span.arrival_rate);
        self.request_bytes.push(span.request_bytes);
        self.response_bytes.push(span.response_bytes);
        self.status.push(u64::from(span.status));
        self.failed.push(u8::from(span.failed));
        self.adjusted_count.push(span.adjusted_count);
        self.class_in_flight.push(u64::from(span.class_in_flight));
        self.class_arrival_rate.push(span.class_arrival_rate);
        self.trace_spans.push(u64::from(row.trace_spans));
    }
}

impl Edges {
    fn put(
        &mut self,
        row: &EdgeRow,
        span: &Span,
        [source_class, class]: [Sym; 2],
        dictionary: &mut Dictionary,
    ) {
        self.started_at.push(span.started_us);
        put_hex(span.trace_id.to_be_bytes(), &mut self.trace_id);
        put_hex(span.span_id.to_be_bytes(), &mut self.span_id);
        self.source_cluster.push(dictionary.code(row.source_cluster));
        self.source_service.push(dictionary.code(row.source_service));
        self.source_class.push(dictionary.code(source_class));
        self.destination_cluster.push(dictionary.code(row.destination_cluster));
        self.destination_service.push(dictionary.code(row.destination_service));
        self.class.push(dictionary.code(class));
        self.duration_us.push(span.duration_us as u64);
        self.network_us.push(row.network_us);
        self.request_bytes.push(span.request_bytes);
        self.response_bytes.push(span.response_bytes);
        self.status.push(u64::from(span.status));
        self.failed.push(u8::from(span.failed));
        self.adjusted_count.push(span.adjusted_count);
        self.ruleset_version.push(span.ruleset_version);
        self.trace_spans.push(u64::from(row.trace_spans));
        self.source_call.push(u64::from(row.source_call));
    }
}
