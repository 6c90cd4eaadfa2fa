//! Trace context of one request: continued from W3C or B3 headers, or started.
//! Source: <https://www.w3.org/TR/trace-context/>.

use std::borrow::Cow;

use spillway_contracts::{HTTP_HEADER_TRACEPARENT, HTTP_HEADER_TRACESTATE};

use crate::b3;
use crate::headers::TraceHeaders;
use crate::hex;
use crate::ids::{Ids, SpanId, TraceId};
use crate::sampling::Sampler;
use crate::short::Short;
use crate::tracestate;

const SAMPLED: u8 = 0x01;
/// Level 2: the last seven bytes of the trace id are random, so consistent samplers may use them.
const RANDOM: u8 = 0x02;

/// Where the context came from; decides which headers are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No usable header: this request starts a trace.
    Started,
    /// `traceparent`.
    W3c,
    /// `b3`.
    B3Single,
    /// `x-b3-*`.
    B3Multi,
}

/// One request's place in its trace, with the span that this proxy makes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext<'a> {
    /// The trace.
    pub trace_id: TraceId,
    /// This proxy's span: the parent of whatever follows.
    pub span_id: SpanId,
    /// The caller's span; None for the first of its trace.
    pub parent: Option<SpanId>,
    /// Whether spans of this trace are recorded.
    pub sampled: bool,
    /// For the span: as received, or what a trace started here carries. Holds the sampling threshold.
    pub tracestate: Option<Cow<'a, str>>,
    /// Which header carried it.
    pub origin: Origin,
    /// A trace header was there and was not understood.
    pub malformed: bool,
    random: bool,
    /// There was a tracestate without a trace of its own: it must not travel on.
    orphaned_tracestate: bool,
}

struct Found {
    parent: Option<(TraceId, SpanId)>,
    flags: u8,
    origin: Origin,
}

impl<'a> TraceContext<'a> {
    /// Continues the headers' trace, else starts one, which `sampler` keeps or not; draws this proxy's span id.
    pub fn read(headers: &TraceHeaders<'a>, sampler: &'a Sampler, ids: &mut Ids) -> Self {
        let mut malformed = false;
        let found = read_w3c(headers, &mut malformed).or_else(|| read_b3(headers, &mut malformed));
        let mut context = match found {
            Some(found) => Self::continued(found, ids),
            None => Self::started(sampler, ids),
        };
        context.malformed = malformed;
        match headers.tracestate {
            Some(first) if context.origin == Origin::W3c => {
                context.tracestate = tracestate::recordable(first, &headers.more_tracestate);
            }
            found => context.orphaned_tracestate = found.is_some(),
        }
        context
    }

    fn continued(found: Found, ids: &mut Ids) -> Self {
        Self {
            trace_id: found.parent.map_or_else(|| ids.trace_id(), |(trace, _)| trace),
            span_id: ids.span_id(),
            parent: found.parent.map(|(_, span)| span),
            sampled: found.flags & SAMPLED != 0,
            tracestate: None,
            origin: found.origin,
            malformed: false,
            random: found.flags & RANDOM != 0,
            orphaned_tracestate: false,
        }
    }

    fn started(sampler: &'a Sampler, ids: &mut Ids) -> Self {
        let trace_id = ids.trace_id();
        let sampled = sampler.keeps(&trace_id);
        Self {
            trace_id,
            span_id: ids.span_id(),
            parent: None,
            sampled,
            tracestate: sampler.tracestate().filter(|_| sampled).map(Cow::Borrowed),
            origin: Origin::Started,
            malformed: false,
            random: true,
            orphaned_tracestate: false,
        }
    }

    /// Tells `edit` the header changes (name, new value or removal) that make this proxy's span the
    /// parent of what follows. None for an unsampled trace that was continued: no span of ours will
    /// exist, so the caller's stays the parent. One that was started here is told as unsampled, or the
    /// next proxy would start, and perhaps sample, another.
    pub fn edits(&self, mut edit: impl FnMut(&'static str, Option<&str>)) {
        let started = self.origin == Origin::Started;
        if !self.sampled && !started {
            return;
        }
        edit(HTTP_HEADER_TRACEPARENT, Some(&self.traceparent()));
        if started && let Some(state) = &self.tracestate {
            edit(HTTP_HEADER_TRACESTATE, Some(state));
        } else if self.orphaned_tracestate {
            edit(HTTP_HEADER_TRACESTATE, None);
        }
        match self.origin {
            Origin::Started | Origin::W3c => {}
            Origin::B3Single => {
                let value = b3::format_single(&self.trace_id, &self.span_id, self.sampled);
                edit(b3::SINGLE, Some(&value));
            }
            Origin::B3Multi => self.b3_multi_edits(edit),
        }
    }

    /// This proxy's span as a version 00 traceparent.
    pub fn traceparent(&self) -> Short<55> {
        let flags = match (self.random, self.sampled) {
            (true, true) => "-03",
            (true, false) => "-02",
            (false, true) => "-01",
            (false, false) => "-00",
        };
        let mut out = Short::default();
        out.push("00-").push_hex(&self.trace_id).push("-").push_hex(&self.span_id).push(flags);
        out
    }

    fn b3_multi_edits(&self, mut edit: impl FnMut(&'static str, Option<&str>)) {
        edit(b3::TRACE_ID, Some(Short::<32>::default().push_hex(&self.trace_id)));
        edit(b3::SPAN_ID, Some(Short::<16>::default().push_hex(&self.span_id)));
        edit(b3::PARENT_SPAN_ID, None);
    }
}

fn read_w3c(headers: &TraceHeaders<'_>, malformed: &mut bool) -> Option<Found> {
    let value = headers.traceparent?;
    let parsed = parse_traceparent(value).filter(|_| !headers.several_traceparents);
    *malformed |= parsed.is_none();
    let (trace, span, flags) = parsed?;
    Some(Found { parent: Some((trace, span)), flags, origin: Origin::W3c })
}

fn read_b3(headers: &TraceHeaders<'_>, malformed: &mut bool) -> Option<Found> {
    let (parsed, origin) = if let Some(value) = headers.b3 {
        (b3::parse_single(value), Origin::B3Single)
    } else if headers.b3_trace.is_some() || headers.b3_sampled.is_some() {
        let parsed = b3::parse_multi(headers.b3_trace, headers.b3_span, headers.b3_sampled, headers.b3_flags);
        (parsed, Origin::B3Multi)
    } else {
        return None;
    };
    *malformed |= parsed.is_none();
    parsed.map(|b3| Found { parent: b3.parent, flags: u8::from(b3.sampled), origin })
}

/// Reads `version-traceid-parentid-flags`. Later versions may append fields, version 00 may not.
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
