//! One plugin in one worker: configuration, tick, export.
//!
//! Only ticks send, not requests: a full batch waits for the next one, which is soon, and a request's
//! path stays short.

use proxy_wasm::types::LogLevel;
use spillway_filter_core::Direction;
use spillway_filter_core::config::Config;
use spillway_filter_core::exchange::Moment;
use spillway_filter_core::ids::Ids;
use spillway_filter_core::otlp::envelope::{
    EXPORT_METHOD, EXPORT_SERVICE, Envelope, SPANS_SCOPE, rejected_spans,
};
use spillway_filter_core::outbox::{Batch, Outbox, Outcome};
use spillway_filter_core::sampling::Sampler;

use crate::host::{Call, Host};
use crate::load::LoadBook;
use crate::stats::{Reason, SpanStats};
use crate::totals::Totals;

const EXPORT_TIMEOUT_MS: u64 = 5_000;
/// Ten samples in the load window, and the longest that a full batch waits.
const TICK_MS: u64 = 100;
const INSTANCE_MAX: usize = 512;
const MS: u64 = 1_000_000;

/// One plugin in one worker.
pub struct Plugin<H> {
    pub host: H,
    pub config: Config,
    pub sampler: Sampler,
    pub ids: Ids,
    pub load: LoadBook<H>,
    pub stats: SpanStats,
    /// Inbound only: the spans of both directions and the requests of one are told once.
    totals: Option<Totals>,
    envelope: Envelope,
    outbox: Outbox,
    flushed_ns: u64,
    /// Wall clock minus monotonic clock: a request reads one clock only.
    epoch_ns: u64,
    closing: bool,
}

impl<H: Host> Plugin<H> {
    /// Reads the configuration of the root context at hand.
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

    /// Both clocks, at the cost of one.
    pub fn now(&self) -> Moment {
        let mono_ns = self.host.mono_ns();
        Moment { wall_ns: mono_ns.wrapping_add(self.epoch_ns), mono_ns }
    }

    /// Samples, tells the stats, sends what is due. Returns the monotonic time.
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

    /// Queues a finished request's span.
    pub fn push(&mut self, span: &[u8]) {
        self.stats.finished.add(1);
        let dropped = self.outbox.push(span);
        self.stats.drop(Reason::QueueFull, dropped);
    }

    /// The collector answered a call with a message of `size` bytes, or the call failed. Returns whether
    /// this was the last answer that a closing plugin waited for.
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

    /// The root context goes: sends what is left. Whether nothing is, else the proxy keeps the context
    /// until the collector's answers are in. A proxy that exits, rather than drop a listener, waits for
    /// no answer: then this line of its log is what tells of these spans.
    pub fn close(&mut self) -> bool {
        self.closing = true;
        let held = self.outbox.held();
        if held > 0 {
            self.host
                .log(LogLevel::Warn, &format!("spillway filter: closing, {held} spans are not yet accepted"));
        }
        self.closed()
    }

    /// Sends what can be sent; what the proxy does not take any more is given up.
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

    /// What fails is counted and not sent again: the next totals are newer.
    fn send_totals(&mut self, now_ns: u64) {
        let Some(totals) = &mut self.totals else { return };
        let Some(period) = totals.take_turn(&self.host) else { return };
        let spans = self.stats.totals(&self.host);
        let requests = self.load.totals(now_ns);
        if !totals.send(&self.host, &self.config.collector_cluster, period, requests, spans) {
            self.stats.totals_failures.add(1);
        }
    }

    /// Sends full batches; with `all` also what failed before and what is left.
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

    /// Whether the proxy took the call.
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

/// Wall clock minus monotonic clock. The one is read between two readings of the other. The shortest of
/// three tries counts, since the thread may be suspended in the middle of one.
fn epoch_ns(host: &impl Host) -> Option<u64> {
    let attempt = |_| {
        let (before, wall, after) = (host.mono_ns(), host.wall_ns(), host.mono_ns());
        let took = after.saturating_sub(before);
        (took, wall.wrapping_sub(before.wrapping_add(took / 2)))
    };
    (0..3).map(attempt).min().map(|(_, epoch)| epoch)
}

/// The proxy's name among all: the node id of its bootstrap.
fn instance(host: &impl Host) -> Result<String, String> {
    let id = host.property(&["xds", "node", "id"]).and_then(|id| String::from_utf8(id).ok());
    match id.filter(|id| !id.is_empty()) {
        Some(id) if id.len() <= INSTANCE_MAX => Ok(id),
        Some(id) => Err(format!("node.id: {} bytes are too many, at most {INSTANCE_MAX}", id.len())),
        None => Err("node.id: missing in the proxy's bootstrap, it has no default".to_string()),
    }
}

/// Ids seeded by the host's entropy, else by what differs between VMs.
fn ids(host: &impl Host) -> Ids {
    let mut seed = [0u8; 32];
    if host.random(&mut seed) {
        return Ids::from_entropy(seed);
    }
    host.log(LogLevel::Warn, "spillway filter: no entropy from the proxy: ids are seeded from the clocks");
    let address = seed.as_ptr() as u64;
    Ids::from_weak_seed(host.wall_ns() ^ host.mono_ns().rotate_left(32) ^ address)
}
