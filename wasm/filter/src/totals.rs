//! Once a second, by one worker: the totals of the proxy, from counters that all workers share.

use spillway_contracts::VALUE_TOTALS_SCOPE;
use spillway_filter_core::config::Config;
use spillway_filter_core::otlp::envelope::{EXPORT_METHOD, Envelope};
use spillway_filter_core::otlp::totals::{Period, Requests, Spans, TOTALS_SERVICE, metrics};
use spillway_filter_core::turn::Turn;

use crate::host::{Call, Host};

/// Key of the record that says whose turn it is.
const TURN: &str = "spillway_totals";
const TIMEOUT_MS: u64 = 5_000;

/// One worker's part in it.
pub struct Totals {
    envelope: Envelope,
    /// A call without an answer. There is one at most: the next totals hold whatever it lost.
    under_way: Option<u32>,
}

impl Totals {
    /// The first worker notes when the counters began.
    pub fn begin(host: &impl Host, config: &Config, instance: &str) -> Self {
        if let Some((record, version)) = host.shared(TURN)
            && Turn::read(&record).is_none()
        {
            let now = host.wall_ns();
            host.share(TURN, &Turn { began_ns: now, sent_ns: now }.write(), version);
        }
        Self { envelope: Envelope::new(config, instance, VALUE_TOTALS_SCOPE), under_way: None }
    }

    /// The period to send totals of, where they are due and no other worker sends them.
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

    /// Sends totals. Returns whether the proxy took the call.
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

    /// Returns whether this is the answer to totals.
    pub fn answered(&mut self, token: u32) -> bool {
        self.under_way.take_if(|under_way| *under_way == token).is_some()
    }
}
