//! Sends the totals of the proxy once a second, from one worker, using counters that all workers
//! share. When the load has changed, they are sent at the next tick.

use std::rc::Rc;

use spillway_contracts::VALUE_TOTALS_SCOPE;
use spillway_filter_core::config::Config;
use spillway_filter_core::export::turn::Turn;
use spillway_filter_core::metering::changes::Changes;
use spillway_filter_core::otlp::envelope::{EXPORT_METHOD, Envelope};
use spillway_filter_core::otlp::totals::{Period, TOTALS_SERVICE};

use crate::host::{Call, Host};

/// Key of the shared record that decides whose turn it is.
const TURN: &str = "spillway_totals";
const TIMEOUT_MS: u64 = 5_000;

/// Encoded metrics (`otlp::totals::metrics`).
type Metrics = Vec<u8>;

/// A worker's turn to send totals.
pub struct Due {
    /// The period to report.
    pub period: Period,
    /// The totals of the moment at which the load changed, to be sent before those of now. With
    /// both, a reader knows what came before and after it.
    pub since: Option<Rc<Metrics>>,
}

/// One worker's state for sending totals.
pub struct Totals {
    envelope: Envelope,
    /// Token of the call in flight. There is at most one, since the next totals include whatever a
    /// lost call contained.
    under_way: Option<u32>,
    /// The last export of any worker that this one knows of.
    sent_ns: u64,
    changes: Changes<Metrics>,
}

impl Totals {
    /// Creates the state. The first worker records the time at which the counters began.
    pub fn begin(host: &impl Host, config: &Config, instance: &str) -> Self {
        if let Some((record, version)) = host.shared(TURN)
            && Turn::read(&record).is_none()
        {
            let now = host.wall_ns();
            host.share(TURN, &Turn { began_ns: now, sent_ns: now }.write(), version);
        }
        let envelope = Envelope::new(config, instance, VALUE_TOTALS_SCOPE);
        Self { envelope, under_way: None, sent_ns: 0, changes: Changes::default() }
    }

    /// Takes the arrivals counter at a tick. Returns what to report, if totals are due and no other
    /// worker is sending them.
    ///
    /// `totals` encodes the totals of this moment. It is called when the load may have changed from
    /// this moment on.
    pub fn tick(
        &mut self,
        host: &impl Host,
        arrivals: Option<u64>,
        totals: impl FnOnce(Period) -> Metrics,
    ) -> Option<Due> {
        let now_ns = host.wall_ns();
        let (record, version) = host.shared(TURN)?;
        let turn = Turn::read(&record)?;
        let period = Period { began_ns: turn.began_ns, now_ns };
        if turn.sent_ns != self.sent_ns {
            self.sent_ns = turn.sent_ns;
            self.changes.reported();
        }
        if let Some(count) = arrivals {
            self.changes.sample(now_ns, count, || totals(period));
        }
        if self.under_way.is_some() {
            return None;
        }
        let turn = turn.next(now_ns, self.changes.noticed())?;
        if !host.share(TURN, &turn.write(), version) {
            return None;
        }
        self.sent_ns = turn.sent_ns;
        Some(Due { period, since: self.changes.reported() })
    }

    /// Sends totals. Returns whether the proxy accepted the call.
    pub fn send(&mut self, host: &impl Host, cluster: &str, since: Option<&Metrics>, now: &Metrics) -> bool {
        // Two requests, one after the other, are one request with the content of both.
        let message = [since.map(|metrics| self.envelope.wrap(metrics)), Some(self.envelope.wrap(now))];
        self.under_way = host.grpc_call(Call {
            cluster,
            service: TOTALS_SERVICE,
            method: EXPORT_METHOD,
            message: &message.into_iter().flatten().flatten().collect::<Vec<u8>>(),
            timeout_ms: TIMEOUT_MS,
        });
        self.under_way.is_some()
    }

    /// Returns whether the token belongs to the totals in flight, and clears it.
    pub fn answered(&mut self, token: u32) -> bool {
        self.under_way.take_if(|under_way| *under_way == token).is_some()
    }
}
