//! What one span says: the facts of one proxied request, in the conventions' terms.
//! Source: OTel semantic conventions, HTTP spans (stable).

use crate::class::Class;
use crate::load::Load;
use crate::trace::TraceContext;
use crate::{Direction, Party};

/// Methods that the conventions know; others are told as `_OTHER`, so names stay few.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"];
const OTHER_METHOD: &str = "_OTHER";

/// One finished request, borrowed from wherever its parts live.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// Which side: decides the kind.
    pub direction: Direction,
    /// Its ids.
    pub trace: &'a TraceContext,
    /// Wall clock, nanoseconds since the epoch.
    pub start_ns: u64,
    /// Start plus the monotonic duration: never before the start.
    pub end_ns: u64,
    /// As received.
    pub method: &'a str,
    /// Without query.
    pub path: &'a str,
    /// Host that was asked for (outbound).
    pub server_address: Option<&'a str>,
    /// None when no response came (reset).
    pub status: Option<u16>,
    /// Body bytes received from the caller.
    pub request_bytes: u64,
    /// Body bytes received from the callee.
    pub response_bytes: u64,
    /// The route's class.
    pub class: Option<Class<'a>>,
    /// Load at arrival (inbound).
    pub load: Option<Load>,
    /// Who asked.
    pub source: Party<'a>,
    /// Who was asked.
    pub destination: Party<'a>,
    /// Ruleset whose route was taken (outbound).
    pub ruleset_version: Option<u64>,
    /// Client time minus the callee's own (outbound).
    pub network_time_us: Option<u64>,
    /// The callee's own time.
    pub service_time_us: Option<u64>,
}

impl Span<'_> {
    /// The method as an attribute value.
    pub fn known_method(&self) -> &str {
        if METHODS.contains(&self.method) { self.method } else { OTHER_METHOD }
    }

    /// The two parts of the name, `METHOD template`; without a template only the method.
    pub fn name(&self) -> (&str, Option<&str>) {
        let method = match self.known_method() {
            OTHER_METHOD => "HTTP",
            method => method,
        };
        (method, self.class.and_then(|class| class.template))
    }

    /// No response, or one that says the server failed.
    pub fn failed(&self) -> bool {
        self.status.is_none_or(|status| status >= 500)
    }
}
