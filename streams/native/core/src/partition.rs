//! One Kafka partition of otlp_spans: takes messages and returns batches. The output is a function
//! of the log (`window`).

use std::collections::VecDeque;

use crate::classes::rules::{Classes, Rule};
use crate::counters::Counters;
use crate::decode::otlp::{Decoder, PayloadError, Rejected};
use crate::decode::reading::ANOTHER_CLUSTER;
use crate::limits::Limits;
use crate::memory::names::Names;
use crate::memory::texts::Texts;
use crate::output::arrivals::Hot;
use crate::output::closed::{Closed, Tick, Writer};
use crate::output::columns::Batch;
use crate::output::raw_spans::RawWriter;
use crate::output::rows::Rows;
use crate::span::Span;
use crate::trace::clock::{Clock, Reading};
use crate::trace::window::{Due, Tools, Window};

/// The state of one worker that reads a partition.
#[derive(Debug)]
pub struct Partition {
    limits: Limits,
    /// Number of partitions of the topics that rows go to.
    partitions: u32,
    clock: Clock,
    /// Set from the first message on.
    window: Option<Window>,
    due: VecDeque<Due>,
    returned: Option<i64>,
    names: Names,
    texts: Texts,
    decoder: Decoder,
    classes: Classes,
    rows: Rows,
    hot: Hot,
    counters: Counters,
    overridden: u64,
}

impl Partition {
    /// Creates a worker that reads from `first_offset`. `log_start` is true if nothing was ever
    /// before that offset, or nothing of it is left.
    ///
    /// # Errors
    /// Names every limit that is not allowed.
    pub fn new(limits: Limits, first_offset: i64, log_start: bool, partitions: u32) -> Result<Self, String> {
        let mut wrong = limits.check().err().into_iter().collect::<Vec<_>>();
        if !(1..=65_536).contains(&partitions) {
            wrong.push(format!("partitions: {partitions}; must be 1 to 65536"));
        }
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        Ok(Partition {
            clock: Clock::new(&limits, first_offset, log_start),
            limits,
            partitions,
            window: None,
            due: VecDeque::new(),
            returned: None,
            names: Names::default(),
            texts: Texts::default(),
            decoder: Decoder::default(),
            classes: Classes::default(),
            rows: Rows::default(),
            hot: Hot::default(),
            counters: Counters::default(),
            overridden: 0,
        })
    }

    /// Sets the horizon (ms) of the predecessor at whose committed offset reading begins. The
    /// predecessor stored everything up to one such horizon after this offset, and nothing beyond.
    ///
    /// Without this call, the predecessor is assumed to have had our own horizon.
    pub fn follow(&mut self, horizon_ms: i64) {
        self.clock.follow(horizon_ms.max(0));
    }

    /// Replaces all class rules (`classes::Rule`).
    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.classes.set(rules);
    }

    /// Adds one message. `is_hot` is true if its spans have just ended, so that `arrivals` counts
    /// them. For `cluster`, see `Decoder::decode`.
    ///
    /// # Errors
    /// Fails when the payload is not an ExportTraceServiceRequest. The clock has advanced
    /// nevertheless.
    pub fn add(
        &mut self,
        payload: &[u8],
        offset: i64,
        timestamp_ms: i64,
        is_hot: bool,
        cluster: Option<&str>,
    ) -> Result<Vec<Rejected>, PayloadError> {
        let mut decoder = std::mem::take(&mut self.decoder);
        let before = self.counters.get(ANOTHER_CLUSTER);
        let found = self.message(offset, timestamp_ms, is_hot, |names, spans, counters| {
            decoder.decode(payload, timestamp_ms.saturating_mul(1000), cluster, names, spans, counters)
        });
        self.overridden = self.counters.get(ANOTHER_CLUSTER) - before;
        self.decoder = decoder;
        found.unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Like `add`, with spans that `fill` appends. Returns None without calling `fill` when the
    /// offset was read before.
    pub fn message<T>(
        &mut self,
        offset: i64,
        timestamp_ms: i64,
        is_hot: bool,
        fill: impl FnOnce(&mut Names, &mut Vec<Span>, &mut Counters) -> T,
    ) -> Option<T> {
        match self.clock.message(offset, timestamp_ms) {
            Reading::InTime => {}
            Reading::Behind => self.counters.add("message_behind_clock", 1),
            Reading::Repeated => {
                self.counters.add("message_repeated", 1);
                return None;
            }
        }
        self.end_ticks();
        let (now_ms, is_warming_up) = (self.clock.now_ms()?, self.clock.tick() < self.clock.answers_from());
        let spans = self.window.as_mut().map(Window::arriving)?;
        let known = spans.len();
        // The worker that answered for these ticks has already counted what is odd in them.
        let mut counted = Counters::default();
        let result =
            fill(&mut self.names, spans, if is_warming_up { &mut counted } else { &mut self.counters });
        self.counters.add("message_for_warm_up", u64::from(is_warming_up));
        if is_hot && let Some(new) = spans.get(known..) {
            self.hot.add(new, now_ms, &mut self.counters);
        }
        if self.names.is_crowded() {
            self.compact();
        }
        Some(result)
    }

    /// Advances the clock of an idle partition. It must have nothing more to read, and later
    /// messages must not be earlier than `now_ms`.
    pub fn advance(&mut self, now_ms: i64) {
        self.clock.advance(now_ms);
        self.end_ticks();
    }

    fn end_ticks(&mut self) {
        let Some(tick) = self.clock.tick() else { return };
        let window = self.window.get_or_insert_with(|| Window::new(self.limits.clone(), tick));
        if window.filling() == tick {
            return;
        }
        let from = self.clock.answers_from().unwrap_or(i64::MAX);
        let mut counted = Counters::default();
        let mut tools = Tools { names: &self.names, texts: &mut self.texts, counters: &mut counted };
        window.advance(tick.min(from), &mut tools).into_iter().for_each(|due| window.recycle(due));
        tools.counters = &mut self.counters;
        self.due.extend(window.advance(tick, &mut tools));
    }

    /// Returns the requests that ended since the last call.
    pub fn arrivals(&mut self) -> Batch {
        let now_ms = self.clock.now_ms().unwrap_or(0);
        self.classes.at(now_ms, &self.names);
        let most = self.limits.classes_per_service;
        self.hot.take(now_ms, self.partitions, most, &mut self.classes, &mut self.names, &mut self.texts)
    }

    /// Returns the rows of ended ticks that were not returned yet, oldest first.
    ///
    /// Adds whole ticks, at least one, until they have `max_rows` calls and edges or no tick is
    /// left. Returns None when no tick has ended, or when it is too early for this worker to answer
    /// for one.
    pub fn close(&mut self, max_rows: usize) -> Option<Closed> {
        let ended = self.window.as_ref()?.filling() - 1;
        let first = self.returned.map_or(self.clock.answers_from()?, |returned| returned + 1);
        if ended < first {
            return None;
        }
        let (mut writer, mut raw) = (Writer::default(), RawWriter::default());
        let (mut last, mut traces) = (ended, 0);
        while let Some(due) = self.due.pop_front() {
            self.write(&due, &mut writer, &mut raw);
            traces += due.ends.len() as u64;
            self.window.as_mut()?.recycle(due);
            if writer.rows() >= max_rows
                && let Some(next) = self.due.front()
            {
                last = next.tick - 1;
                break;
            }
        }
        self.returned = Some(last);
        let spans = raw.finish(&self.names);
        let closed = writer.finish(spans, &self.names);
        Some(Closed { last_tick: last, commit_offset: self.clock.done(last), traces, ..closed })
    }

    fn write(&mut self, due: &Due, writer: &mut Writer, raw: &mut RawWriter) {
        self.classes.at(due.tick * self.limits.tick_ms, &self.names);
        let tools = (&mut self.classes, &mut self.names, &mut self.counters);
        self.rows.fill(&due.spans, &due.ends, self.limits.classes_per_service, tools);
        let (number, spans, partitions, names) = (due.tick, &due.spans[..], self.partitions, &self.names);
        writer.write(&Tick { number, spans, partitions, names }, &self.rows, &mut self.texts);
        raw.write(self.limits.span_sample, &due.spans, &due.ends, &self.rows, &mut self.names);
    }

    /// Forgets strings that nothing holds any more.
    fn compact(&mut self) {
        let mut hot = self.hot.hold();
        let due = self.due.iter_mut().flat_map(|due| due.spans.iter_mut().flat_map(Span::syms_mut));
        let open = self.window.iter_mut().flat_map(Window::syms_mut);
        self.names.compact(open.chain(due).chain(hot.syms_mut()));
        self.hot.restore(hot);
    }

    /// Returns the counters of odd input since the last call. What the previous worker has counted
    /// is not included (`message_for_warm_up`).
    pub fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.counters.take()
    }

    /// Number of spans in the last added message that claimed another cluster. 0 if the message was
    /// read for warm-up.
    pub fn overridden(&self) -> u64 {
        self.overridden
    }

    /// Number of held spans: of open traces, of the tick that is being filled, and closed ones not
    /// yet returned.
    pub fn open_spans(&mut self) -> usize {
        let due: usize = self.due.iter().map(|due| due.spans.len()).sum();
        due + self.window.as_mut().map_or(0, |window| window.open_spans + window.arriving().len())
    }

    /// Number of traces of which a span is remembered.
    pub fn known_traces(&self) -> usize {
        self.window.as_ref().map_or(0, Window::traces)
    }

    /// The log time of the partition in ms. None before the first message.
    pub fn clock_ms(&self) -> Option<i64> {
        self.clock.now_ms()
    }
}
