//! Sends the totals of the proxy once a second, from one worker, using counters that all workers
//! share.

use spillway_contracts::VALUE_TOTALS_SCOPE;
use spillway_filter_core::config::Config;
use spillway_filter_core::export::turn::Turn;
use spillway_filter_core::otlp::envelope::{EXPORT_METHOD, Envelope};
use spillway_filter_core::otlp::totals::{Period, Requests, Spans, TOTALS_SERVICE, metrics};

use crate::host::{Call, Host};

/// Key of the shared record that decides whose turn it is.
const TURN: &str = "spillway_totals";
const TIMEOUT_MS: u64 = 5_000;

/// One worker's state for sending totals.
pub struct Totals {
    envelope: Envelope,
    /// Token of the call in flight. There is at most one, since the next totals include whatever a
    /// lost call contained.
    under_way: Option<u32>,
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
        Self { envelope: Envelope::new(config, instance, VALUE_TOTALS_SCOPE), under_way: None }
    }

    /// Returns the period to report, if totals are due and no other worker is sending them.
    pub fn take_turn(&self, host: &impl Host) -> Option<Period> {
        if self.under_way.is_some() {
            return None;
        }
        let now_ns = host.wall_ns();
        let (record, version) = host.shared(TURN)?;
        let turn = Turn::read(&record)?.next(now_ns)?;
        let first = host.share(TURN, &turn.write(), version);
        first.then_some(Period { began_ns: turn.began_ns, now_ns })
    }

    /// Sends totals. Returns whether the proxy accepted the call.
    pub fn send<'a>(
        &mut self,
        host: &impl Host,
        cluster: &str,
        period: Period,
        requests: impl Iterator<Item = Requests<'a>>,
        spans: Option<Spans>,
    ) -> bool {
        let message = self.envelope.wrap(&metrics(period, requests, spans));
        self.under_way = host.grpc_call(Call {
            cluster,
            service: TOTALS_SERVICE,
            method: EXPORT_METHOD,
            message: &message,
            timeout_ms: TIMEOUT_MS,
        });
        self.under_way.is_some()
    }

    /// Returns whether the token belongs to the totals in flight, and clears it.
    pub fn answered(&mut self, token: u32) -> bool {
        self.under_way.take_if(|under_way| *under_way == token).is_some()
    }
}
