//! One proxied request from arrival to end: the facts read from it, the edits of its headers, and
//! its span.
//!
//! The span is encoded into one buffer, field by field, as the facts become known.

use spillway_contracts::*;

use crate::config::{Config, is_name};
use crate::context::trace::TraceContext;
use crate::metering::class::Class;
use crate::metering::load::Loads;
use crate::otlp::arrival::Arrival;
use crate::otlp::ending::{put_destination, put_protocol};
use crate::request::caller::Caller;
use crate::request::grpc;
use crate::request::headers::{RequestHeaders, ResponseHeaders, decimal};
use crate::request::outcome::{Answer, Outcome};
use crate::request::property::{Properties, Property, ruleset_version};
use crate::short::Short;
use crate::{Direction, Party};

/// Readings of both clocks at one instant, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since the Unix epoch. Gives the span its timestamps.
    pub wall_ns: u64,
    /// Monotonic time, which never steps back. Used for durations.
    pub mono_ns: u64,
}

/// The facts of a request that are known when it arrives.
#[derive(Debug)]
pub struct Arriving<'a> {
    /// Time of arrival.
    pub now: Moment,
    /// Headers of the request.
    pub headers: &'a RequestHeaders<'a>,
    /// The caller, as far as it is believed.
    pub caller: Caller<'a>,
    /// Whether the request has no body.
    pub end_of_stream: bool,
    /// The traffic class that the route's name carries.
    pub class: Option<Class<'a>>,
    /// The load that the request met (inbound).
    pub loads: Option<Loads>,
    /// The buffer for the encoded span; empty.
    pub buffer: Vec<u8>,
}

/// One request in progress.
#[derive(Debug)]
pub struct Exchange {
    started: Moment,
    /// The span encoded so far. None when the request leaves no span.
    span: Option<Vec<u8>>,
    grpc: bool,
    /// Whether no service of the mesh made the request (inbound).
    entry: bool,
    long_lived: bool,
    /// Whether the class names the destination service, which the span then already records
    /// (outbound).
    service_recorded: bool,
    request_bytes: Option<u64>,
    answer: Option<Answer>,
}

impl Exchange {
    /// Starts the exchange and encodes the facts that are known on arrival.
    pub fn arrive(config: &Config, trace: &TraceContext<'_>, arriving: Arriving<'_>) -> Self {
        let Arriving { now, headers, caller, end_of_stream, class, loads, mut buffer } = arriving;
        let grpc = headers.content_type.is_some_and(grpc::is_grpc);
        let long_lived = headers.method == Some(b"CONNECT");
        let service = class.and_then(|class| class.service);
        let service = service.filter(|_| config.direction == Direction::Outbound);
        if trace.sampled && !long_lived {
            let path = headers.path.unwrap_or_default();
            let attempts = headers.attempt_count.filter(|_| !caller.anonymous).and_then(decimal);
            Arrival {
                direction: config.direction,
                trace,
                start_ns: now.wall_ns,
                method: headers.method.unwrap_or_default(),
                path,
                scheme: headers.scheme,
                authority: headers.authority,
                rpc: if grpc { grpc::method(path) } else { None },
                class,
                loads,
                source: caller.party,
                // Outbound, this proxy's own tries are counted when the request is over.
                resends: attempts
                    .filter(|_| config.direction == Direction::Inbound)
                    .map(|n| n.saturating_sub(1)),
            }
            .put(&mut buffer);
            put_destination(Party { cluster: None, service }, &mut buffer);
        }
        let request_bytes = if end_of_stream { Some(0) } else { headers.content_length.and_then(decimal) };
        let span = trace.sampled.then_some(buffer);
        let service_recorded = service.is_some();
        let entry = caller.party.service.is_none();
        Self { started: now, span, grpc, entry, long_lived, service_recorded, request_bytes, answer: None }
    }

    /// Records the response's headers. `end_of_stream` is true when no body follows.
    pub fn respond(
        &mut self,
        config: &Config,
        mono_ns: u64,
        headers: &ResponseHeaders<'_>,
        end_of_stream: bool,
    ) {
        let status = headers.status.and_then(decimal).and_then(|status| u16::try_from(status).ok());
        let event_stream = headers.content_type.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        self.long_lived |= status == Some(101) || event_stream;
        let outbound = config.direction == Direction::Outbound;
        let cluster = headers.cluster.filter(|_| outbound).and_then(name);
        if let (Some(span), Some(_)) = (&mut self.span, cluster) {
            put_destination(Party { cluster, service: None }, span);
        }
        self.answer = Some(Answer {
            status,
            after_ns: mono_ns.saturating_sub(self.started.mono_ns),
            callee_time_us: headers.service_time.filter(|_| outbound).and_then(decimal),
            cluster_recorded: cluster.is_some(),
            bytes: if end_of_stream { Some(0) } else { headers.content_length.and_then(decimal) },
            grpc_status: headers.grpc_status.map(grpc::status),
        });
    }

    /// Passes to `edit` the changes to the response's headers. Inbound, they are this service's
    /// time in microseconds and its cluster.
    pub fn response_edits(&self, config: &Config, mut edit: impl FnMut(&'static str, Option<&str>)) {
        if let (Some(answer), Direction::Inbound) = (&self.answer, config.direction) {
            let time = *Short::<20>::default().push_decimal(answer.after_ns / 1_000);
            edit(HTTP_HEADER_SERVICE_TIME, Some(&time));
            edit(HTTP_HEADER_CLUSTER, Some(&config.cluster));
        }
    }

    /// Whether no service of the mesh made the request, as far as is known (inbound).
    pub fn entry(&self) -> bool {
        self.entry
    }

    /// Whether the request is a tunnel, an upgrade, an event stream, or has outlived every call.
    ///
    /// Such a stream lasts as long as its user likes. Its duration is not a latency, and the stream
    /// does not count as load.
    pub fn long_lived(&self) -> bool {
        self.long_lived
    }

    /// Marks the request as long-lived when it has lasted longer than `limit_ns`. Returns whether
    /// this call marked it.
    pub fn outlived(&mut self, mono_ns: u64, limit_ns: u64) -> bool {
        let outlived = !self.long_lived && mono_ns.saturating_sub(self.started.mono_ns) > limit_ns;
        self.long_lived |= outlived;
        outlived
    }

    /// Discards the span and returns its buffer, because a long-lived stream leaves no span.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        self.span.take()
    }

    /// Returns the encoded span of the finished request. None when the request leaves no span.
    pub fn finish(
        mut self,
        config: &Config,
        mono_ns: u64,
        properties: &mut impl Properties,
    ) -> Option<Vec<u8>> {
        let mut span = self.span.take().filter(|_| !self.long_lived)?;
        let resends = match config.direction {
            Direction::Inbound => {
                put_destination(local_party(config), &mut span);
                None
            }
            Direction::Outbound => {
                self.put_routed(properties, &mut span);
                properties.number(Property::AttemptCount).map(|tries| tries.saturating_sub(1))
            }
        };
        if let Some(protocol) = properties.text(Property::Protocol) {
            put_protocol(protocol.trim_start_matches("HTTP/").as_bytes(), &mut span);
        }
        let elapsed = mono_ns.saturating_sub(self.started.mono_ns);
        let outcome = Outcome {
            direction: config.direction,
            answer: self.answer,
            grpc: self.grpc,
            request_bytes: self.request_bytes,
            resends,
        };
        let mut ending = outcome.ending(properties);
        ending.end_ns = self.started.wall_ns.saturating_add(elapsed);
        if config.direction == Direction::Outbound {
            ending.ruleset_version = properties.get(Property::RulesetVersion).and_then(ruleset_version);
        }
        ending.put(&mut span);
        Some(span)
    }

    /// Records the destination as far as the span does not name it yet.
    ///
    /// The service and cluster come from the route, unless the response named its cluster. The
    /// response is more accurate, because Envoy may have failed over to another cluster.
    fn put_routed(&self, properties: &mut impl Properties, span: &mut Vec<u8>) {
        let cluster_recorded = self.answer.is_some_and(|answer| answer.cluster_recorded);
        if cluster_recorded && self.service_recorded {
            return;
        }
        let routed = properties.text(Property::ClusterName);
        let mut parts = routed.into_iter().flat_map(|name| name.split(XDS_CLUSTER_SEPARATOR));
        // Further parts of the name are denials that narrow the failover.
        if let (Some(service), Some(cluster)) = (parts.next(), parts.next()) {
            let cluster = Some(cluster).filter(|_| !cluster_recorded);
            let service = Some(service).filter(|_| !self.service_recorded);
            put_destination(Party { cluster, service }, span);
        }
    }
}

/// Spillway's own headers, which only its proxies may write.
const OURS: [&str; 6] = [
    HTTP_HEADER_SOURCE_CLUSTER,
    HTTP_HEADER_SOURCE_SERVICE,
    HTTP_HEADER_SERVICE_TIME,
    HTTP_HEADER_CLUSTER,
    HTTP_HEADER_NO_ANSWER,
    HTTP_HEADER_DENIED,
];

/// Passes to `edit` the changes to a request's headers that concern its source.
///
/// Outbound, this proxy writes its own cluster and service. From an anonymous caller, all Spillway
/// headers are removed.
pub fn source_edits(
    config: &Config,
    headers: &RequestHeaders<'_>,
    caller: Caller<'_>,
    mut edit: impl FnMut(&'static str, Option<&str>),
) {
    if caller.anonymous && headers.ours {
        OURS.iter().for_each(|name| edit(name, None));
    }
    if config.direction == Direction::Outbound {
        edit(HTTP_HEADER_SOURCE_CLUSTER, Some(&config.cluster));
        edit(HTTP_HEADER_SOURCE_SERVICE, Some(&config.service));
    }
}

fn local_party(config: &Config) -> Party<'_> {
    Party { cluster: Some(&config.cluster), service: Some(&config.service) }
}

fn name(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|name| is_name(name))
}

#[cfg(test)]
#[path = "exchange_tests/mod.rs"]
mod tests;
