//! One proxied request from arrival to end: what is read from it, what is written into its headers,
//! and the span that remains.

use spillway_contracts::*;

use crate::config::{Config, is_name};
use crate::ids::Ids;
use crate::load::Load;
use crate::span::Span;
use crate::trace::{Edit, TraceContext};
use crate::{Direction, Party, class};

/// Both clocks at one instant, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Since the epoch; dates the span.
    pub wall_ns: u64,
    /// Never steps back; measures durations.
    pub mono_ns: u64,
}

/// What the proxy decided about the request, read when it is over.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Class id, or the catch-all's name.
    pub name: Option<String>,
    /// Envoy cluster, `service|cluster` for those that the relay serves.
    pub cluster: Option<String>,
    /// From the route's metadata.
    pub ruleset_version: Option<u64>,
}

#[derive(Clone, Debug)]
struct Response {
    status: Option<u16>,
    after_ns: u64,
    callee_time_us: Option<u64>,
    callee_cluster: Option<String>,
}

/// One request under way.
#[derive(Clone, Debug)]
pub struct Exchange {
    started: Moment,
    trace: TraceContext,
    method: String,
    path: String,
    authority: Option<String>,
    source_cluster: Option<String>,
    source_service: Option<String>,
    load: Option<Load>,
    request_bytes: u64,
    response_bytes: u64,
    response: Option<Response>,
    long_lived: bool,
}

impl Exchange {
    /// Reads the request's headers through `header` (name -> value).
    pub fn arrive(
        direction: Direction,
        started: Moment,
        load: Option<Load>,
        header: impl Fn(&str) -> Option<Vec<u8>>,
        ids: &mut Ids,
    ) -> Self {
        let text = |name: &str| header(name).and_then(|value| String::from_utf8(value).ok());
        let on = |wanted: Direction, name: &str| if direction == wanted { text(name) } else { None };
        let method = text(":method").unwrap_or_default();
        // A path may hold any byte; a span holds text.
        let mut path =
            header(":path").map(|path| String::from_utf8_lossy(&path).into_owned()).unwrap_or_default();
        path.truncate(path.find(['?', '#']).unwrap_or(path.len()));
        Self {
            started,
            trace: TraceContext::read(&header, ids),
            long_lived: method == "CONNECT",
            method,
            path,
            authority: on(Direction::Outbound, ":authority"),
            source_cluster: on(Direction::Inbound, HTTP_HEADER_SOURCE_CLUSTER).filter(|n| is_name(n)),
            source_service: on(Direction::Inbound, HTTP_HEADER_SOURCE_SERVICE).filter(|n| is_name(n)),
            load,
            request_bytes: 0,
            response_bytes: 0,
            response: None,
        }
    }

    /// Changes to the request's headers: the trace, and outbound who asks.
    pub fn request_edits(&self, config: &Config) -> Vec<Edit> {
        let mut edits = self.trace.edits();
        if config.direction == Direction::Outbound {
            edits.push((HTTP_HEADER_SOURCE_CLUSTER, Some(config.cluster.clone())));
            edits.push((HTTP_HEADER_SOURCE_SERVICE, Some(config.service.clone())));
        }
        edits
    }

    /// Reads the response's headers through `header`.
    pub fn respond(&mut self, direction: Direction, mono_ns: u64, header: impl Fn(&str) -> Option<Vec<u8>>) {
        let text = |name: &str| header(name).and_then(|value| String::from_utf8(value).ok());
        let of_callee = |name: &str| if direction == Direction::Outbound { text(name) } else { None };
        let status = text(":status").and_then(|status| status.parse().ok());
        let event_stream = text("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        self.long_lived |= status == Some(101) || event_stream;
        self.response = Some(Response {
            status,
            after_ns: mono_ns.saturating_sub(self.started.mono_ns),
            callee_time_us: of_callee(HTTP_HEADER_SERVICE_TIME).and_then(|time| time.parse().ok()),
            callee_cluster: of_callee(HTTP_HEADER_CLUSTER).filter(|name| is_name(name)),
        });
    }

    /// Changes to the response's headers: inbound, our own time and where we are.
    pub fn response_edits(&self, config: &Config) -> Vec<Edit> {
        match (&self.response, config.direction) {
            (Some(response), Direction::Inbound) => vec![
                (HTTP_HEADER_SERVICE_TIME, Some((response.after_ns / 1_000).to_string())),
                (HTTP_HEADER_CLUSTER, Some(config.cluster.clone())),
            ],
            _ => Vec::new(),
        }
    }

    /// Body bytes from the caller.
    pub fn request_body(&mut self, bytes: usize) {
        self.request_bytes = self.request_bytes.saturating_add(bytes as u64);
    }

    /// Body bytes from the callee.
    pub fn response_body(&mut self, bytes: usize) {
        self.response_bytes = self.response_bytes.saturating_add(bytes as u64);
    }

    /// A tunnel, an upgrade or an event stream: it lasts as long as its user likes, so its duration
    /// is no latency and it is no load.
    pub fn long_lived(&self) -> bool {
        self.long_lived
    }

    /// Whether a trace header was there and was not understood.
    pub fn malformed_trace(&self) -> bool {
        self.trace.malformed
    }

    /// Whether a span is to be made at all.
    pub fn recorded(&self) -> bool {
        self.trace.sampled && !self.long_lived
    }

    /// The span of the finished request; None when none is to be made.
    pub fn finish<'a>(&'a self, config: &'a Config, mono_ns: u64, route: &'a Route) -> Option<Span<'a>> {
        if !self.recorded() {
            return None;
        }
        let own = Party { cluster: Some(&config.cluster), service: Some(&config.service) };
        let (source, destination) = match config.direction {
            Direction::Inbound => (self.source(), own),
            Direction::Outbound => (own, self.destination(route)),
        };
        let response = self.response.as_ref();
        Some(Span {
            direction: config.direction,
            trace: &self.trace,
            start_ns: self.started.wall_ns,
            end_ns: self.started.wall_ns.saturating_add(mono_ns.saturating_sub(self.started.mono_ns)),
            method: &self.method,
            path: &self.path,
            server_address: self.authority.as_deref(),
            status: response.and_then(|response| response.status),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            class: route.name.as_deref().and_then(class::of_route),
            load: self.load,
            source,
            destination,
            ruleset_version: route.ruleset_version,
            network_time_us: response.and_then(network_time_us),
            service_time_us: response.and_then(|response| match config.direction {
                Direction::Inbound => Some(response.after_ns / 1_000),
                Direction::Outbound => response.callee_time_us,
            }),
        })
    }

    fn source(&self) -> Party<'_> {
        Party { cluster: self.source_cluster.as_deref(), service: self.source_service.as_deref() }
    }

    /// Where the request went: as routed, except that the answer knows better which cluster it came
    /// from, since Envoy may have failed over.
    fn destination<'a>(&'a self, route: &'a Route) -> Party<'a> {
        let routed = route.cluster.as_deref().and_then(|name| name.split_once(XDS_CLUSTER_SEPARATOR));
        let answered = self.response.as_ref().and_then(|response| response.callee_cluster.as_deref());
        Party {
            cluster: answered.or(routed.map(|(_, cluster)| cluster)),
            service: routed.map(|(service, _)| service),
        }
    }
}

/// Time until the response's headers, minus the callee's own time for the same: DESIGN decision 3.
fn network_time_us(response: &Response) -> Option<u64> {
    response.callee_time_us.map(|callee| (response.after_ns / 1_000).saturating_sub(callee))
}

/// The ruleset version as Envoy hands out a value of route metadata: a Struct's number is a
/// little-endian double, a string is its text.
pub fn ruleset_version(property: &[u8]) -> Option<u64> {
    let number = property.try_into().map(f64::from_le_bytes).ok().filter(|n| n.fract() == 0.0 && *n >= 1.0);
    number
        .map(|number| number as u64)
        .or_else(|| std::str::from_utf8(property).ok().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
