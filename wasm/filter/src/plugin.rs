//! One plugin in one worker: configuration, tick and export.
//!
//! Only ticks send, so the path of a request stays short. A full batch waits for the next tick,
//! which is soon.

use proxy_wasm::types::LogLevel;
use spillway_filter_core::Direction;
use spillway_filter_core::config::Config;
use spillway_filter_core::context::ids::Ids;
use spillway_filter_core::context::sampling::Sampler;
use spillway_filter_core::export::outbox::{Batch, Outbox, Outcome};
use spillway_filter_core::otlp::envelope::{
    EXPORT_METHOD, EXPORT_SERVICE, Envelope, SPANS_SCOPE, rejected_spans,
};
use spillway_filter_core::otlp::totals::metrics;
use spillway_filter_core::request::exchange::Moment;

use crate::host::{Call, Host};
use crate::load::LoadBook;
use crate::stats::{Reason, SpanStats};
use crate::totals::Totals;

const EXPORT_TIMEOUT_MS: u64 = 5_000;
/// Interval between ticks. It gives ten samples per second in the load window, and is the longest
/// time that a full batch waits.
const TICK_MS: u64 = 100;
const INSTANCE_MAX: usize = 512;
const MS: u64 = 1_000_000;

/// The state of one plugin in one worker.
pub struct Plugin<H> {
    pub host: H,
    pub config: Config,
    pub sampler: Sampler,
    pub ids: Ids,
    pub load: LoadBook<H>,
    pub stats: SpanStats,
    /// Set on the inbound plugin only. The totals cover the spans of both directions and the
    /// inbound requests, so one plugin sends them.
    totals: Option<Totals>,
    envelope: Envelope,
    outbox: Outbox,
    flushed_ns: u64,
    /// Wall clock minus monotonic clock, in nanoseconds. With it, a request reads only one clock.
    epoch_ns: u64,
    closing: bool,
}

impl<H: Host> Plugin<H> {
    /// Reads the configuration of the current root context and creates the plugin.
    pub fn configure(host: H) -> Result<Self, String> {
        let config = Config::parse(&host.configuration())?;
        let now = host.mono_ns();
        host.tick_every(config.flush_interval_ms.min(TICK_MS));
        let instance = instance(&host)?;
        let no_stats = "the proxy defines no stats";
        let mut plugin = Self {
            sampler: Sampler::new(config.sample_ratio),
            ids: ids(&host),
            load: LoadBook::define(host.clone(), config.direction, now).ok_or(no_stats)?,
            stats: SpanStats::define(&host, config.direction).ok_or(no_stats)?,
            totals: (config.direction == Direction::Inbound)
                .then(|| Totals::begin(&host, &config, &instance)),
            envelope: Envelope::new(&config, &instance, SPANS_SCOPE),
            outbox: Outbox::new(config.bounds),
            config,
            flushed_ns: now,
            epoch_ns: 0,
            closing: false,
            host,
        };
        plugin.set_epoch();
        Ok(plugin)
    }

    /// Returns both clocks for the cost of reading one.
    pub fn now(&self) -> Moment {
        let mono_ns = self.host.mono_ns();
        Moment { wall_ns: mono_ns.wrapping_add(self.epoch_ns), mono_ns }
    }

    /// Samples the load, sends what is due and publishes the stats. Returns the monotonic time.
    pub fn tick(&mut self) -> u64 {
        let now = self.host.mono_ns();
        self.set_epoch();
        self.load.sample(now);
        let due = now.saturating_sub(self.flushed_ns) >= self.config.flush_interval_ms * MS;
        if due {
            self.flushed_ns = now;
        }
        self.flush(due || self.closing);
        self.stats.tell(&self.host);
        self.send_totals(now);
        now
    }

    /// Queues the span of a finished request.
    pub fn push(&mut self, span: &[u8]) {
        self.stats.finished.add(1);
        let dropped = self.outbox.push(span);
        self.stats.drop(Reason::QueueFull, dropped);
    }

    /// Handles the collector's answer of `size` bytes to a call. `size` is None when the call
    /// failed.
    ///
    /// Returns whether this was the last answer that a closing plugin waited for.
    pub fn answered(&mut self, token: u32, size: Option<usize>) -> bool {
        if self.totals.as_mut().is_some_and(|totals| totals.answered(token)) {
            self.stats.totals_failures.add(u64::from(size.is_none()));
            return false;
        }
        let outcome = self.outbox.answered(token, size.is_some());
        let rejected = size.filter(|_| outcome != Outcome::Unknown);
        let rejected = rejected.map_or(0, |size| rejected_spans(&self.host.grpc_answer(size)));
        self.account(outcome, rejected);
        self.closing && self.closed()
    }

    /// Sends the remaining spans when the root context is about to be deleted.
    ///
    /// Returns whether no span is left. Otherwise the proxy keeps the context until the collector's
    /// answers have arrived. A proxy that exits, instead of only removing a listener, waits for no
    /// answer. In that case only this log line reports the lost spans.
    pub fn close(&mut self) -> bool {
        self.closing = true;
        let held = self.outbox.held();
        if held > 0 {
            self.host
                .log(LogLevel::Warn, &format!("spillway filter: closing, {held} spans are not yet accepted"));
        }
        self.closed()
    }

    /// Sends what can be sent. Spans that the proxy no longer accepts are dropped.
    fn closed(&mut self) -> bool {
        self.flush(true);
        if !self.outbox.expects_answers() {
            let left = self.outbox.abandon();
            self.stats.drop(Reason::Shutdown, left);
        }
        self.stats.tell(&self.host);
        self.outbox.held() == 0
    }

    fn set_epoch(&mut self) {
        self.epoch_ns = epoch_ns(&self.host).unwrap_or(self.epoch_ns);
    }

    /// Sends the totals if it is this worker's turn. A failed export is counted but not repeated,
    /// because the next totals are newer.
    fn send_totals(&mut self, now_ns: u64) {
        let Some(totals) = &mut self.totals else { return };
        let arrivals = self.load.arrivals();
        let load = &mut self.load;
        let due = totals.tick(&self.host, arrivals, |period| metrics(period, load.totals(now_ns), None));
        let Some(due) = due else { return };
        let now = metrics(due.period, self.load.totals(now_ns), self.stats.totals(&self.host));
        if !totals.send(&self.host, &self.config.collector_cluster, due.since.as_deref(), &now) {
            self.stats.totals_failures.add(1);
        }
    }

    /// Sends full batches. With `all`, also sends batches that failed before and the incomplete
    /// batch.
    fn flush(&mut self, all: bool) {
        while let Some(batch) = self.next_batch(all) {
            if !self.export(batch) {
                break;
            }
        }
    }

    fn next_batch(&mut self, all: bool) -> Option<Batch> {
        let kept = if all { self.outbox.take_kept() } else { None };
        kept.or_else(|| self.outbox.take_new(all))
    }

    /// Sends a batch. Returns whether the proxy accepted the call.
    fn export(&mut self, batch: Batch) -> bool {
        let message = self.envelope.wrap(&batch.bytes);
        let call = self.host.grpc_call(Call {
            cluster: &self.config.collector_cluster,
            service: EXPORT_SERVICE,
            method: EXPORT_METHOD,
            message: &message,
            timeout_ms: EXPORT_TIMEOUT_MS,
        });
        match call {
            Some(token) => self.outbox.sent(token, batch),
            None => {
                let outcome = self.outbox.refused(batch);
                self.account(outcome, 0);
            }
        }
        call.is_some()
    }

    fn account(&mut self, outcome: Outcome, rejected: u64) {
        match outcome {
            Outcome::Sent { spans, bytes } => {
                let rejected = rejected.min(spans);
                self.stats.sent.add(spans - rejected);
                self.stats.bytes.add(bytes);
                self.stats.drop(Reason::Rejected, rejected);
            }
            Outcome::Kept => self.stats.callout_failures.add(1),
            Outcome::Dropped(spans) => {
                self.stats.callout_failures.add(1);
                self.stats.drop(Reason::ExportFailed, spans);
            }
            Outcome::Unknown => {}
        }
    }
}

/// Wall clock minus monotonic clock, in nanoseconds.
///
/// The wall clock is read between two readings of the monotonic clock. The shortest of three tries
/// is used, because the thread may be suspended during one.
fn epoch_ns(host: &impl Host) -> Option<u64> {
    let attempt = |_| {
        let (before, wall, after) = (host.mono_ns(), host.wall_ns(), host.mono_ns());
        let took = after.saturating_sub(before);
        (took, wall.wrapping_sub(before.wrapping_add(took / 2)))
    };
    (0..3).map(attempt).min().map(|(_, epoch)| epoch)
}

/// Returns the proxy's unique name: the node id of its bootstrap.
fn instance(host: &impl Host) -> Result<String, String> {
    let id = host.property(&["xds", "node", "id"]).and_then(|id| String::from_utf8(id).ok());
    match id.filter(|id| !id.is_empty()) {
        Some(id) if id.len() <= INSTANCE_MAX => Ok(id),
        Some(id) => Err(format!("node.id: {} bytes; must be at most {INSTANCE_MAX}", id.len())),
        None => Err("node.id: missing in the proxy's bootstrap; it has no default".to_string()),
    }
}

/// Creates the generator of ids. Its seed is the host's entropy, or else values that differ between
/// VMs.
fn ids(host: &impl Host) -> Ids {
    let mut seed = [0u8; 32];
    if host.random(&mut seed) {
        return Ids::from_entropy(seed);
    }
    host.log(LogLevel::Warn, "spillway filter: the proxy gives no entropy; ids are seeded from the clocks");
    let address = seed.as_ptr() as u64;
    Ids::from_weak_seed(host.wall_ns() ^ host.mono_ns().rotate_left(32) ^ address)
}
