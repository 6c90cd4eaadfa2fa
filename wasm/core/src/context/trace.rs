//! The trace context of one request, continued from W3C or B3 headers or started here.
//!
//! Source: <https://www.w3.org/TR/trace-context/>.

use std::borrow::Cow;

use spillway_contracts::{HTTP_HEADER_TRACEPARENT, HTTP_HEADER_TRACESTATE};

use crate::context::b3::{self, B3, Sampling};
use crate::context::hex;
use crate::context::ids::{Ids, SpanId, TraceId};
use crate::context::sampling::Sampler;
use crate::context::tracestate;
use crate::request::headers::TraceHeaders;
use crate::short::Short;

const SAMPLED: u8 = 0x01;
/// W3C level 2: the last seven bytes of the trace id are random, so consistent samplers may use
/// them.
const RANDOM: u8 = 0x02;

/// The source of a trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The request carried no usable header, so it starts a trace.
    Started,
    /// `traceparent`.
    W3c,
    /// `b3` or `x-b3-*`.
    B3,
}

/// The position of one request in its trace, with the span that this proxy creates for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext<'a> {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of this proxy's span, which becomes the parent of all later spans.
    pub span_id: SpanId,
    /// Id of the caller's span. None for the first span of a trace.
    pub parent: Option<SpanId>,
    /// Whether spans of this trace are recorded.
    pub sampled: bool,
    /// The `tracestate` to record in the span: as received, or as written by the sampler of this
    /// proxy. It holds the sampling threshold.
    pub tracestate: Option<Cow<'a, str>>,
    /// The kind of header that carried the context.
    pub origin: Origin,
    /// A trace header was present and could not be parsed.
    pub malformed: bool,
    /// This proxy made the sampling decision, so all later participants must be informed.
    decided: bool,
    random: bool,
    /// A `tracestate` arrived without a usable `traceparent`. It must not be forwarded.
    orphaned_tracestate: bool,
    b3: Shapes,
}

/// The forms of B3 headers that arrived, parsed or not.
///
/// An application that propagates B3 reads only those, so they must agree with `traceparent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shapes {
    single: bool,
    multi: bool,
    debug: bool,
}

impl<'a> TraceContext<'a> {
    /// Continues the trace of a caller that is believed. Starts a new trace for an anonymous
    /// caller.
    pub fn of(anonymous: bool, headers: &TraceHeaders<'a>, sampler: &'a Sampler, ids: &mut Ids) -> Self {
        if anonymous { Self::restart(headers, sampler, ids) } else { Self::read(headers, sampler, ids) }
    }

    /// Continues the trace in the headers, or starts one, and draws the id of this proxy's span.
    ///
    /// `sampler` decides when the caller did not decide about sampling. W3C headers win over B3
    /// headers.
    pub fn read(headers: &TraceHeaders<'a>, sampler: &'a Sampler, ids: &mut Ids) -> Self {
        let mut malformed = false;
        let w3c = read_w3c(headers, &mut malformed);
        let (b3, shapes) =
            if headers.any_b3() { read_b3(headers, &mut malformed) } else { Default::default() };
        let mut context = match (w3c, b3) {
            (Some((trace, span, flags)), _) => Self {
                sampled: flags & SAMPLED != 0,
                random: flags & RANDOM != 0,
                decided: false,
                ..Self::new(Origin::W3c, Some((trace, span)), sampler, ids)
            },
            (None, Some(b3)) => Self::continued_b3(b3, sampler, ids),
            (None, None) => Self::new(Origin::Started, None, sampler, ids),
        };
        (context.malformed, context.b3) = (malformed, shapes);
        match headers.tracestate {
            Some(first) if context.origin == Origin::W3c => {
                context.tracestate = tracestate::recordable(first, &headers.more_tracestate);
            }
            found => {
                context.orphaned_tracestate = found.is_some();
                let threshold = sampler.tracestate().filter(|_| context.decided && context.sampled);
                context.tracestate = threshold.map(Cow::Borrowed);
            }
        }
        context
    }

    /// Starts a trace and ignores the headers, which come from a caller that is not believed.
    ///
    /// Every form of trace header that arrived is rewritten, so that nothing of the caller's trace
    /// is forwarded.
    pub fn restart(headers: &TraceHeaders<'_>, sampler: &'a Sampler, ids: &mut Ids) -> Self {
        let mut context = Self::new(Origin::Started, None, sampler, ids);
        let threshold = sampler.tracestate().filter(|_| context.sampled);
        context.tracestate = threshold.map(Cow::Borrowed);
        context.orphaned_tracestate = headers.tracestate.is_some();
        let multi = [headers.b3_trace, headers.b3_span, headers.b3_sampled, headers.b3_flags];
        context.b3 =
            Shapes { single: headers.b3.is_some(), multi: multi.iter().any(Option::is_some), debug: false };
        context
    }

    /// Creates a context for which nobody has made a sampling decision yet. A trace id drawn here
    /// is random.
    fn new(origin: Origin, parent: Option<(TraceId, SpanId)>, sampler: &Sampler, ids: &mut Ids) -> Self {
        let trace_id = parent.map_or_else(|| ids.trace_id(), |(trace, _)| trace);
        Self {
            trace_id,
            span_id: ids.span_id(),
            parent: parent.map(|(_, span)| span),
            sampled: sampler.keeps(&trace_id),
            tracestate: None,
            origin,
            malformed: false,
            decided: true,
            random: parent.is_none(),
            orphaned_tracestate: false,
            b3: Shapes::default(),
        }
    }

    fn continued_b3(b3: B3, sampler: &Sampler, ids: &mut Ids) -> Self {
        let context = Self::new(Origin::B3, b3.parent, sampler, ids);
        match b3.sampling {
            Sampling::Deferred => context,
            known => Self { sampled: known != Sampling::Deny, decided: false, ..context },
        }
    }

    /// Passes to `edit` the header changes (name, and the new value or None for removal) that make
    /// this proxy's span the parent of later spans.
    ///
    /// An unsampled trace that was continued needs no changes: this proxy records no span for it,
    /// so the caller's span stays the parent. When this proxy itself decided that a trace is
    /// unsampled, it forwards that decision. Otherwise the next proxy would start another trace,
    /// and perhaps sample it.
    pub fn edits(&self, mut edit: impl FnMut(&'static str, Option<&str>)) {
        if !self.sampled && !self.decided {
            return;
        }
        edit(HTTP_HEADER_TRACEPARENT, Some(&self.traceparent()));
        if self.decided
            && let Some(state) = &self.tracestate
        {
            edit(HTTP_HEADER_TRACESTATE, Some(state));
        } else if self.orphaned_tracestate {
            edit(HTTP_HEADER_TRACESTATE, None);
        }
        if self.b3.single {
            edit(
                b3::SINGLE,
                Some(&b3::format_single(&self.trace_id, self.next_parent(), self.b3_sampling())),
            );
        }
        if self.b3.multi {
            self.b3_multi_edits(edit);
        }
    }

    /// Formats the `traceparent` header of version 00 for the next participant.
    pub fn traceparent(&self) -> Short<55> {
        let mut out = Short::default();
        out.push("00-").push_hex(&self.trace_id).push("-").push_hex(self.next_parent()).push("-");
        out.push_hex(&[self.flags()]);
        out
    }

    /// The W3C trace flags, as forwarded and as recorded in the span.
    pub fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.sampled, SAMPLED) | flag(self.random, RANDOM)
    }

    /// Parent of later spans: this proxy's span when it will be recorded, otherwise the caller's.
    fn next_parent(&self) -> &SpanId {
        self.parent.as_ref().filter(|_| !self.sampled).unwrap_or(&self.span_id)
    }

    fn b3_sampling(&self) -> Sampling {
        match (self.sampled, self.b3.debug) {
            (true, true) => Sampling::Debug,
            (true, false) => Sampling::Accept,
            (false, _) => Sampling::Deny,
        }
    }

    fn b3_multi_edits(&self, mut edit: impl FnMut(&'static str, Option<&str>)) {
        edit(b3::TRACE_ID, Some(Short::<32>::default().push_hex(&self.trace_id)));
        edit(b3::SPAN_ID, Some(Short::<16>::default().push_hex(self.next_parent())));
        edit(b3::PARENT_SPAN_ID, None);
        let (sampled, flags) = match self.b3_sampling() {
            Sampling::Debug => (None, Some("1")),
            Sampling::Deny => (Some("0"), None),
            _ => (Some("1"), None),
        };
        edit(b3::SAMPLED, sampled);
        edit(b3::FLAGS, flags);
    }
}

fn read_w3c(headers: &TraceHeaders<'_>, malformed: &mut bool) -> Option<(TraceId, SpanId, u8)> {
    let parsed = parse_traceparent(headers.traceparent?).filter(|_| !headers.several_traceparents);
    *malformed |= parsed.is_none();
    parsed
}

/// Reads both forms of B3 headers. The single header wins when it parses.
fn read_b3(headers: &TraceHeaders<'_>, malformed: &mut bool) -> (Option<B3>, Shapes) {
    let single = headers.b3.map(b3::parse_single);
    let flags = headers.b3_flags.filter(|flags| b3::is_debug(Some(flags)));
    let multi = [headers.b3_trace, headers.b3_span, headers.b3_sampled, flags];
    let multi = multi.iter().any(Option::is_some).then(|| {
        let [trace, span, sampled, flags] = multi;
        b3::parse_multi(trace, span, sampled, flags)
    });
    *malformed |= [single, multi].contains(&Some(None));
    let found = single.flatten().or(multi.flatten());
    let debug = [single, multi].iter().flatten().flatten().any(|b3| b3.sampling == Sampling::Debug);
    (found, Shapes { single: single.is_some(), multi: multi.is_some(), debug })
}

/// Parses `version-traceid-parentid-flags`. Later versions may append fields, version 00 may not.
pub fn parse_traceparent(value: &[u8]) -> Option<(TraceId, SpanId, u8)> {
    let mut parts = value.splitn(5, |byte| *byte == b'-');
    let [version]: [u8; 1] = hex::decode(parts.next()?, false)?;
    let trace: TraceId = hex::decode(parts.next()?, false)?;
    let span: SpanId = hex::decode(parts.next()?, false)?;
    let [flags]: [u8; 1] = hex::decode(parts.next()?, false)?;
    let more = parts.next().is_some();
    let valid = version != 0xff && !(version == 0 && more) && trace != [0; 16] && span != [0; 8];
    valid.then_some((trace, span, flags))
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
