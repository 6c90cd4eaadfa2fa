//! What became of a request, when it is over.

use std::borrow::Cow;

use crate::otlp::ending::Ending;
use crate::property::{Properties, Property};
use crate::{Direction, flags, grpc};

/// What the response's headers said.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// HTTP status; None where it is no number.
    pub status: Option<u16>,
    /// Time from arrival to the response's headers.
    pub after_ns: u64,
    /// The callee's own time (outbound).
    pub callee_time_us: Option<u64>,
    /// The callee said which cluster it is in, and the span tells it.
    pub told_cluster: bool,
    /// Size of the body, where the headers tell it.
    pub bytes: Option<u64>,
    /// gRPC's code, where the headers tell it already.
    pub grpc_status: Option<u64>,
}

/// What is known without asking the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Whose fault a status is depends on the side.
    pub direction: Direction,
    /// None when no response came (reset).
    pub answer: Option<Answer>,
    /// It was a gRPC request.
    pub grpc: bool,
    /// Size of the request's body, where its headers told it.
    pub request_bytes: Option<u64>,
    /// Tries before the one that was answered (outbound).
    pub resends: Option<u64>,
}

impl Outcome {
    /// The span's fields; its times and route are others' to tell.
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

    /// As sent: none where the stream ended before its trailers.
    fn grpc_status(self, properties: &mut impl Properties) -> Option<u64> {
        let answer = self.answer.filter(|_| self.grpc)?;
        answer.grpc_status.or_else(|| properties.get(Property::GrpcStatus).map(grpc::status))
    }

    /// What the headers declared, unless it may not all have passed: then what did.
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

    /// Time until the response's headers, minus the callee's own time for the same: DESIGN decision 3.
    /// None after a retry: the tries before, their time-outs and the waits between them are no network.
    fn network_time_us(self) -> Option<u64> {
        let answer = self.answer.filter(|_| self.resends.unwrap_or(0) == 0)?;
        answer.callee_time_us.map(|callee| (answer.after_ns / 1_000).saturating_sub(callee))
    }

    /// Why it failed: gRPC's status, an HTTP status of the server's making, or no (whole) response.
    /// A 4xx is the caller's affair on both sides: no destination is worse for it. So is a gRPC stream that the
    /// caller left after it was answered, to the server: gRPC calls that CANCELLED.
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
