//! Collects rejected spans, as one request per reason.

use std::fmt;

use spillway_contracts::{SPAN_ATTRIBUTE_CLUSTER, SPAN_ATTRIBUTE_SERVICE};

use crate::decode::wire::{BYTES, Reader, put_bytes, put_raw, tag};

/// The reason why a span is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    TraceId,
    SpanId,
    ParentId,
    BeforeEpoch,
    Future,
    NegativeDuration,
    TooLong,
    NoCluster,
    NoService,
    LongIdentity,
    BadService,
    NoClass,
}

/// Applies to server spans only. The span stays in its trace as an internal span.
pub const NO_CLASS: Reason = Reason::NoClass;

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Reason::TraceId => "trace id is not 16 bytes or is zero",
            Reason::SpanId => "span id is not 8 bytes or is zero",
            Reason::ParentId => "parent span id is not 8 bytes",
            Reason::BeforeEpoch => "started before the year 2000",
            Reason::Future => "ends more than a minute after its arrival",
            Reason::NegativeDuration => "negative duration",
            Reason::TooLong => "longer than an hour",
            Reason::NoCluster => {
                return write!(out, "no cluster: resource attribute {SPAN_ATTRIBUTE_CLUSTER} is absent");
            }
            Reason::NoService => {
                return write!(out, "no service: resource attribute {SPAN_ATTRIBUTE_SERVICE} is absent");
            }
            Reason::LongIdentity => "cluster or service has a name of more than 253 bytes",
            Reason::BadService => {
                "service name cannot be part of a class id: letters, digits and . _ - are allowed"
            }
            Reason::NoClass => "server span without traffic class, HTTP or RPC attributes",
        };
        out.write_str(text)
    }
}

/// Spans that were rejected for one reason, as a request of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub reason: String,
    /// An ExportTraceServiceRequest with only these spans and their resources.
    pub request: Vec<u8>,
    pub spans: u64,
}

/// Rejected spans of one payload.
#[derive(Debug, Default)]
pub struct Rejects<'a>(Vec<Pile<'a>>);

/// Rejected spans with one reason.
#[derive(Debug)]
struct Pile<'a> {
    reason: Reason,
    count: u64,
    request: Vec<u8>,
    /// The ResourceSpans message that `spans` belong to.
    around: &'a [u8],
    /// Fields ScopeSpans.spans that are not yet in the request.
    spans: Vec<u8>,
}

impl<'a> Rejects<'a> {
    /// Adds a rejected Span message. `around` is the ResourceSpans message that contains it.
    #[cold]
    pub fn add(&mut self, reason: Reason, around: &'a [u8], span: &[u8]) {
        let at = self.0.iter().position(|pile| pile.reason == reason).unwrap_or_else(|| {
            self.0.push(Pile { reason, count: 0, request: Vec::new(), around, spans: Vec::new() });
            self.0.len() - 1
        });
        let Some(pile) = self.0.get_mut(at) else { return };
        if !std::ptr::eq(pile.around, around) {
            pile.close();
            pile.around = around;
        }
        put_bytes(2, span, &mut pile.spans);
        pile.count += 1;
    }

    /// Returns one request for each reason, in the order in which the reasons first occurred.
    pub fn finish(self) -> Vec<Rejected> {
        let close = |mut pile: Pile<'_>| {
            pile.close();
            Rejected { reason: pile.reason.to_string(), request: pile.request, spans: pile.count }
        };
        self.0.into_iter().map(close).collect()
    }
}

impl Pile<'_> {
    /// Moves the spans into the request, in a copy of their ResourceSpans message without its other
    /// spans.
    fn close(&mut self) {
        const SCOPE_SPANS: u32 = tag(2, BYTES);
        let mut message = Vec::new();
        let mut fields = Reader::new(self.around);
        // The message was read before, so it contains no errors.
        while let Ok(Some(field)) = fields.tag() {
            match field {
                SCOPE_SPANS => drop(fields.bytes()),
                other => {
                    let from = fields;
                    if fields.skip(other).is_err() {
                        break;
                    }
                    put_raw(other, from.until(&fields), &mut message);
                }
            }
        }
        put_bytes(2, &self.spans, &mut message);
        put_bytes(1, &message, &mut self.request);
        self.spans.clear();
    }
}
