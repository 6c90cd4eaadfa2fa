//! What the requests of one plugin in one worker share with its root context. A VM runs on one
//! thread and calls back one at a time, so a `RefCell` is enough; a borrow never spans a host call.

use std::cell::RefCell;
use std::time::Duration;

use proxy_wasm::hostcalls;
use spillway_filter_core::config::Config;
use spillway_filter_core::ids::Ids;
use spillway_filter_core::load::{Load, LoadWindow};
use spillway_filter_core::otlp::{EXPORT_METHOD, EXPORT_SERVICE, Envelope, rejected_spans};
use spillway_filter_core::outbox::{Batch, Outbox, Outcome};

use crate::metrics::Metrics;

const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// One plugin in one worker.
pub struct Worker {
    pub config: Config,
    pub metrics: Metrics,
    pub ids: RefCell<Ids>,
    envelope: Envelope,
    window: RefCell<LoadWindow>,
    outbox: RefCell<Outbox>,
}

impl Worker {
    pub fn new(config: Config, metrics: Metrics, ids: Ids) -> Self {
        let outbox = Outbox::new(config.max_batch_spans, config.max_queue_spans);
        Self {
            envelope: Envelope::new(&config),
            config,
            metrics,
            ids: RefCell::new(ids),
            window: RefCell::default(),
            outbox: RefCell::new(outbox),
        }
    }

    /// Counts an arrival and tells the load that it meets; the in-flight gauge is the caller's.
    pub fn arrival(&self, mono_ns: u64) -> Option<Load> {
        let before = self.metrics.arrivals.get();
        self.metrics.arrivals.add(1);
        let arrival_rate = self.window.try_borrow().ok()?.rate(mono_ns, before?);
        Some(Load { in_flight: self.metrics.in_flight.get()?, arrival_rate })
    }

    /// Notes the arrivals counter for the rate over the last second.
    pub fn sample(&self, mono_ns: u64) {
        if let (Some(count), Ok(mut window)) = (self.metrics.arrivals.get(), self.window.try_borrow_mut()) {
            window.sample(mono_ns, count);
        }
    }

    /// Queues a finished request's span.
    pub fn push(&self, span: Vec<u8>) {
        let dropped = self.outbox.try_borrow_mut().map_or(1, |mut outbox| outbox.push(span));
        self.metrics.dropped.add(dropped as i64);
    }

    /// Sends full batches; with `all` also what failed before and what is left.
    pub fn flush(&self, all: bool) {
        while let Some(batch) = self.next_batch(all) {
            if !self.export(batch) {
                break;
            }
        }
    }

    /// The collector answered a callout: with its response, or None where the call failed.
    pub fn answered(&self, token: u32, response: Option<&[u8]>) {
        let Ok(mut outbox) = self.outbox.try_borrow_mut() else { return };
        let outcome = outbox.answered(token, response.is_some());
        drop(outbox);
        self.account(outcome, response.map_or(0, rejected_spans));
    }

    /// The worker stops: what was not accepted is told as dropped.
    pub fn abandon(&self) {
        let left = self.outbox.try_borrow_mut().map_or(0, |mut outbox| outbox.abandon());
        self.metrics.dropped.add(left as i64);
    }

    fn next_batch(&self, all: bool) -> Option<Batch> {
        let mut outbox = self.outbox.try_borrow_mut().ok()?;
        let kept = if all { outbox.take_kept() } else { None };
        if kept.is_some() || !(all || outbox.full()) {
            return kept;
        }
        outbox.take_new(|spans| self.envelope.wrap(spans))
    }

    /// Whether the proxy took the call.
    fn export(&self, batch: Batch) -> bool {
        let call = hostcalls::dispatch_grpc_call(
            &self.config.collector_cluster,
            EXPORT_SERVICE,
            EXPORT_METHOD,
            Vec::new(),
            Some(&batch.payload),
            EXPORT_TIMEOUT,
        );
        let Ok(mut outbox) = self.outbox.try_borrow_mut() else {
            self.metrics.dropped.add(batch.spans as i64);
            return false;
        };
        match call {
            Ok(token) => outbox.sent(token, batch),
            Err(_) => {
                let outcome = outbox.refused(batch);
                drop(outbox);
                self.account(outcome, 0);
            }
        }
        call.is_ok()
    }

    fn account(&self, outcome: Outcome, rejected: u64) {
        match outcome {
            Outcome::Sent(spans) => {
                let rejected = rejected.min(spans);
                self.metrics.sent.add((spans - rejected) as i64);
                self.metrics.dropped.add(rejected as i64);
            }
            Outcome::Kept => self.metrics.callout_failures.add(1),
            Outcome::Dropped(spans) => {
                self.metrics.callout_failures.add(1);
                self.metrics.dropped.add(spans as i64);
            }
            Outcome::Unknown => {}
        }
    }
}
