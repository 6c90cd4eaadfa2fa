//! Random logs of a partition, the results of a worker that reads them, and batches as text.
#![allow(dead_code)] // each test file uses a part of this module

use std::collections::BTreeMap;

use proptest::prelude::*;
use spillway_spans::limits::Limits;
use spillway_spans::memory::names::Names;
use spillway_spans::output::closed::Closed;
use spillway_spans::output::columns::{Batch, Column};
use spillway_spans::partition::Partition;
use spillway_spans::span::{Kind, Span};

pub const TICK: i64 = 10;
pub const PARTITIONS: u32 = 3;

/// Limits for tests. Times are so short that a log of some hundred messages spans many horizons (22
/// ticks). Bounds are so low that logs reach them.
pub fn limits() -> Limits {
    Limits {
        window_ms: 2 * TICK,
        hold_ms: 4 * TICK,
        life_ms: 8 * TICK,
        remember_ms: 10 * TICK,
        tick_ms: TICK,
        max_trace_spans: 7,
        max_tick_spans: 14,
        classes_per_service: 2,
        span_sample: 0.5,
    }
}

/// A span described by a few small numbers. Equal ids are likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed {
    pub trace: u8,
    pub id: u8,
    pub parent: u8,
    pub kind: u8,
    pub service: u8,
    pub template: u8,
    pub started: u16,
    pub duration: u16,
}

/// A server span without a caller.
pub const ONE: Seed =
    Seed { trace: 1, id: 1, parent: 0, kind: 1, service: 0, template: 0, started: 0, duration: 1 };

#[derive(Clone, Debug)]
pub struct Message {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub spans: Vec<Seed>,
}

pub fn seed() -> impl Strategy<Value = Seed> {
    ((0..9_u8, 1..7_u8, 0..7_u8), (0..3_u8, 0..3_u8, 0..6_u8), (0..300_u16, 0..300_u16)).prop_map(
        |((trace, id, parent), (kind, service, template), (started, duration))| Seed {
            trace,
            id,
            parent,
            kind,
            service,
            template,
            started,
            duration,
        },
    )
}

/// Messages whose timestamps mostly rise, but sometimes stay equal, step back or leap ahead.
pub fn log(messages: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Message>> {
    let step =
        prop_oneof![12 => 0..9_i64, 4 => Just(0_i64), 2 => -12..0_i64, 2 => 9..45_i64, 1 => 45..400_i64];
    let few = prop::collection::vec(seed(), 0..4);
    // More spans than one tick remembers.
    let many = prop::collection::vec(seed(), 20..60);
    let spans = prop_oneof![12 => few, 1 => many];
    prop::collection::vec((step, spans), messages).prop_map(|steps| {
        let mut at = 1_000_000;
        let number = |(offset, (step, spans)): (i64, (i64, Vec<Seed>))| {
            at += step;
            Message { offset, timestamp_ms: at, spans }
        };
        (100..).zip(steps).map(number).collect()
    })
}

/// Builds the span that a seed describes.
pub fn span(seed: &Seed, names: &mut Names) -> Span {
    let service = names.intern(["a", "b", "c"][seed.service as usize]);
    let template = names.intern(["/1", "/2", "/3", "/4", "", "/other"][seed.template as usize]);
    let kind = [Kind::Internal, Kind::Server, Kind::Client][seed.kind as usize];
    let name = format!("span {} {}", seed.trace, seed.id);
    let text = if seed.template == 4 { format!("{} GET /own", names.text(service)) } else { String::new() };
    Span {
        trace_id: u128::from(seed.trace) << 64 | 7,
        span_id: u64::from(seed.id),
        parent_id: u64::from(seed.parent),
        kind,
        failed: seed.duration.is_multiple_of(7),
        status: 200,
        started_us: 1_700_000_000_000_000 + i64::from(seed.started),
        duration_us: i64::from(seed.duration),
        name: names.intern(&name),
        cluster: names.intern("here"),
        service,
        class: names.intern(&text),
        method: names.intern("GET"),
        template,
        destination_service: names.intern(["", "a", "b", "c"][seed.duration as usize % 4]),
        in_flight: 1,
        arrival_rate: 0.5,
        network_us: seed.duration.is_multiple_of(5).then_some(3),
        request_bytes: 1,
        response_bytes: 2,
        adjusted_count: 1.1 + f64::from(seed.started),
        ..Span::default()
    }
}

/// A row: the values as text, by column.
pub type Row = BTreeMap<&'static str, String>;

/// Rows by message: (table, sequence, partition) -> rows.
pub type Batches = BTreeMap<(&'static str, u64, u32), Vec<Row>>;

/// The results of a worker: its batches, and the first and the last tick that it answered for.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub batches: Batches,
    pub ticks: Option<(i64, i64)>,
    pub commit_offset: Option<i64>,
}

impl Done {
    /// Returns all rows of a table.
    pub fn rows(&self, wanted: &str) -> Vec<&Row> {
        self.batches.iter().filter(|((table, ..), _)| *table == wanted).flat_map(|(_, rows)| rows).collect()
    }

    /// Takes everything that the worker has ready. Panics if one worker returns a batch twice.
    pub fn drain(&mut self, worker: &mut Partition, max_rows: usize) {
        while let Some(closed) = worker.close(max_rows) {
            for (table, batch) in tables(&closed) {
                for slice in &batch.slices {
                    let tick = (slice.sequence >> 10) as i64;
                    assert!(tick <= closed.last_tick && self.ticks.is_none_or(|(_, last)| tick > last));
                    let rows = rows(batch)[slice.start..slice.end].to_vec();
                    let before = self.batches.insert((table, slice.sequence, slice.partition), rows);
                    assert!(before.is_none(), "{table} {} came twice", slice.sequence);
                }
            }
            let first = self.ticks.map_or(closed.last_tick, |(first, _)| first);
            self.ticks = Some((first, closed.last_tick));
            self.commit_offset = closed.commit_offset;
        }
    }
}

fn tables(closed: &Closed) -> [(&'static str, &Batch); 3] {
    [("calls", &closed.calls), ("edges", &closed.edges), ("network", &closed.network)]
}

pub fn rows(batch: &Batch) -> Vec<Row> {
    let value = |column: &Column, at: usize| match column {
        Column::I64(values) => values[at].to_string(),
        Column::U64(values) => values[at].to_string(),
        Column::F64(values) => format!("{:?}", values[at]),
        Column::Bool(values) => values[at].to_string(),
        Column::Text(codes) => batch.dictionary[codes[at] as usize].clone(),
        Column::Hex(digits) => {
            let width = digits.len() / batch.rows;
            String::from_utf8_lossy(&digits[at * width..][..width]).into_owned()
        }
    };
    let row = |at: usize| batch.columns.iter().map(|(name, column)| (*name, value(column, at))).collect();
    (0..batch.rows).map(row).collect()
}

/// Returns the counters of odd input since the last call.
pub fn counters(worker: &mut Partition) -> BTreeMap<&'static str, u64> {
    worker.counters().into_iter().collect()
}

pub fn worker(first_offset: i64, log_start: bool) -> Partition {
    Partition::new(limits(), first_offset, log_start, PARTITIONS).expect("limits are allowed")
}

/// Adds a message of generated spans to the worker.
pub fn put(worker: &mut Partition, message: &Message) {
    worker.message(message.offset, message.timestamp_ms, false, |names, spans, _| {
        let new: Vec<_> = message.spans.iter().map(|seed| span(seed, names)).collect();
        spans.extend(new);
    });
}

/// A time at which every trace has closed and nothing is remembered any more, in ms.
pub fn end_of(log: &[Message]) -> i64 {
    log.iter().map(|message| message.timestamp_ms).max().unwrap_or(0) + 40 * TICK
}

/// Results of a worker that reads the whole log.
pub fn read_all(log: &[Message]) -> Done {
    let (mut worker, mut done) = (worker(log.first().map_or(0, |m| m.offset), true), Done::default());
    for message in log {
        put(&mut worker, message);
    }
    worker.advance(end_of(log));
    done.drain(&mut worker, usize::MAX);
    done
}
