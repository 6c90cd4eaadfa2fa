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
}

impl Outcome {
    /// The span's fields; its times, tries and route are others' to tell.
    pub fn ending(self, properties: &mut impl Properties) -> Ending {
        let flags = properties.number(Property::ResponseFlags).unwrap_or(0);
        let answered_grpc = self.grpc && self.answer.is_some();
        let grpc_status = if answered_grpc { properties.number(Property::GrpcStatus) } else { None };
        let error = self.error(grpc_status, flags);
        let size = |known: Option<u64>, properties: &mut _, property| {
            known.or_else(|| Properties::number(properties, property))
        };
        let request_bytes = size(self.request_bytes, properties, Property::RequestSize);
        let known = self.answer.and_then(|answer| answer.bytes);
        let response_bytes = size(known, properties, Property::ResponseSize);
        let details = error.as_ref().and_then(|_| properties.text(Property::ResponseDetails));
        Ending {
            status: self.answer.and_then(|answer| answer.status),
            request_bytes,
            response_bytes,
            network_time_us: self.answer.and_then(network_time_us),
            service_time_us: self.answer.and_then(|answer| match self.direction {
                Direction::Inbound => Some(answer.after_ns / 1_000),
                Direction::Outbound => answer.callee_time_us,
            }),
            grpc_status,
            flags: (flags != 0).then(|| flags::names(flags)).filter(|names| !names.is_empty()),
            details: details.map(str::to_string),
            error,
            ..Ending::default()
        }
    }

    /// Why it failed: gRPC's status, an HTTP status of the server's making, or no (whole) response.
    /// A 4xx is the caller's affair on both sides: no destination is worse for it.
    fn error(self, grpc_status: Option<u64>, flags: u64) -> Option<Cow<'static, str>> {
        match (self.answer.and_then(|answer| answer.status), grpc_status) {
            (None, _) => Some(Cow::Borrowed(flags::first(flags))),
            (_, Some(status)) => grpc::error(self.direction, status).map(Cow::Borrowed),
            (Some(status @ 500..), _) => Some(Cow::Owned(status.to_string())),
            (Some(..400), _) if flags::failed(flags) => Some(Cow::Borrowed(flags::first(flags))),
            _ => None,
        }
    }
}

/// Time until the response's headers, minus the callee's own time for the same: DESIGN decision 3.
fn network_time_us(answer: Answer) -> Option<u64> {
    answer.callee_time_us.map(|callee| (answer.after_ns / 1_000).saturating_sub(callee))
}
