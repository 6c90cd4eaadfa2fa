//! Determines the result of a finished request: status, sizes, times and error.

use std::borrow::Cow;

use crate::Direction;
use crate::otlp::ending::Ending;
use crate::request::flags;
use crate::request::grpc;
use crate::request::property::{Properties, Property};

/// The content of the response's headers.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// HTTP status. None when it is not a number.
    pub status: Option<u16>,
    /// Time from arrival to the response's headers, in nanoseconds.
    pub after_ns: u64,
    /// The time that the callee measured for itself, in microseconds (outbound).
    pub callee_time_us: Option<u64>,
    /// Whether the callee named its cluster, which the span then already records.
    pub cluster_recorded: bool,
    /// Size of the body in bytes, if the headers state it.
    pub bytes: Option<u64>,
    /// gRPC status code, if the headers already contain it.
    pub grpc_status: Option<u64>,
}

/// The facts about a finished request that are known without asking the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The side of the proxy, which decides who is to blame for a status.
    pub direction: Direction,
    /// None when no response came (reset).
    pub answer: Option<Answer>,
    /// Whether it was a gRPC request.
    pub grpc: bool,
    /// Size of the request's body in bytes, if its headers state it.
    pub request_bytes: Option<u64>,
    /// Tries before the one that was answered (outbound).
    pub resends: Option<u64>,
}

impl Outcome {
    /// Builds the ending of the span. The caller fills in its end time and ruleset version.
    pub fn ending(self, properties: &mut impl Properties) -> Ending {
        let flags = properties.number(Property::ResponseFlags).unwrap_or(0);
        let grpc_status = self.grpc_status(properties);
        let error = self.error(grpc_status, flags);
        let (request_bytes, response_bytes) = self.sizes(flags, properties);
        let details = error.as_ref().and_then(|_| properties.text(Property::ResponseDetails));
        Ending {
            status: self.answer.and_then(|answer| answer.status),
            request_bytes,
            response_bytes,
            network_time_us: self.network_time_us(),
            service_time_us: self.answer.and_then(|answer| match self.direction {
                Direction::Inbound => Some(answer.after_ns / 1_000),
                Direction::Outbound => answer.callee_time_us,
            }),
            grpc_status,
            resends: self.resends,
            flags: (flags != 0).then(|| flags::names(flags)).filter(|names| !names.is_empty()),
            details: details.map(str::to_string),
            error,
            ..Ending::default()
        }
    }

    /// Returns the gRPC status that was sent. None when the stream ended before its trailers.
    fn grpc_status(self, properties: &mut impl Properties) -> Option<u64> {
        let answer = self.answer.filter(|_| self.grpc)?;
        answer.grpc_status.or_else(|| properties.get(Property::GrpcStatus).map(grpc::status))
    }

    /// Returns the body sizes of request and response. They are the declared sizes, or the bytes
    /// that passed if the exchange may have been cut short.
    fn sizes(self, flags: u64, properties: &mut impl Properties) -> (Option<u64>, Option<u64>) {
        let cut = self.answer.is_none() || flags::failed(flags);
        let passed = |declared: Option<u64>| declared.filter(|bytes| !cut || *bytes == 0);
        let request = match (passed(self.request_bytes), self.request_bytes) {
            (None, Some(_)) => properties.received_bytes(),
            (passed, _) => passed.or_else(|| properties.number(Property::RequestSize)),
        };
        let response = passed(self.answer.and_then(|answer| answer.bytes));
        (request, response.or_else(|| properties.number(Property::ResponseSize)))
    }

    /// Time until the response's headers minus the callee's own time for the same request: DESIGN
    /// decision 3.
    ///
    /// None after a retry, because the earlier tries, their timeouts and the waits between them are
    /// not network time.
    fn network_time_us(self) -> Option<u64> {
        let answer = self.answer.filter(|_| self.resends.unwrap_or(0) == 0)?;
        answer.callee_time_us.map(|callee| (answer.after_ns / 1_000).saturating_sub(callee))
    }

    /// Returns the reason for a failure: a gRPC status, a 5xx status, or a missing or incomplete
    /// response.
    ///
    /// A 4xx status is the caller's concern on both sides, and says nothing against the
    /// destination. The same holds on the server side when the caller leaves a gRPC stream after
    /// the response headers: gRPC calls that CANCELLED.
    fn error(self, grpc_status: Option<u64>, flags: u64) -> Option<Cow<'static, str>> {
        let cancelled = self.grpc && self.direction == Direction::Inbound && flags::caller_left(flags);
        match (self.answer.and_then(|answer| answer.status), grpc_status) {
            (None, _) => Some(Cow::Borrowed(flags::first(flags))),
            (_, Some(status)) => grpc::error(self.direction, status).map(Cow::Borrowed),
            (Some(status @ 500..), _) => Some(Cow::Owned(status.to_string())),
            (Some(..400), _) if flags::failed(flags) && !cancelled => {
                Some(Cow::Borrowed(flags::first(flags)))
            }
            _ => None,
        }
    }
}
