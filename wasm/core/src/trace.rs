//! Trace context of one request: continued from W3C or B3 headers, or started.
//! Source: <https://www.w3.org/TR/trace-context/>.

use spillway_contracts::{HTTP_HEADER_TRACEPARENT, HTTP_HEADER_TRACESTATE};

use crate::b3;
use crate::hex;
use crate::ids::{Ids, SpanId, TraceId};

const SAMPLED: u8 = 0x01;
/// Longest tracestate that the specification asks everyone to carry; longer ones are not recorded.
const TRACESTATE_MAX: usize = 512;

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
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// This proxy's span: the parent of whatever follows.
    pub span_id: SpanId,
    /// The caller's span; None for the first of its trace.
    pub parent: Option<SpanId>,
    /// Whether spans of this trace are recorded.
    pub sampled: bool,
    /// As received, for the span; the header itself is left alone.
    pub tracestate: Option<String>,
    /// Which header carried it.
    pub origin: Origin,
    /// A trace header was there and was not understood.
    pub malformed: bool,
    /// A tracestate without a trace of its own: must not travel on.
    orphaned_tracestate: bool,
}

/// A change of a request header: a new value, or removal.
pub type Edit = (&'static str, Option<String>);

struct Found {
    parent: Option<(TraceId, SpanId)>,
    sampled: bool,
    origin: Origin,
}

impl TraceContext {
    /// Reads the headers through `header` (name -> value) and draws this proxy's span id.
    pub fn read(header: impl Fn(&str) -> Option<Vec<u8>>, ids: &mut Ids) -> Self {
        let mut malformed = false;
        let found = read_w3c(&header, &mut malformed).or_else(|| read_b3(&header, &mut malformed));
        let tracestate = header(HTTP_HEADER_TRACESTATE);
        let found = found.unwrap_or(Found { parent: None, sampled: true, origin: Origin::Started });
        let w3c = found.origin == Origin::W3c;
        Self {
            trace_id: found.parent.map_or_else(|| ids.trace_id(), |(trace, _)| trace),
            span_id: ids.span_id(),
            parent: found.parent.map(|(_, span)| span),
            sampled: found.sampled,
            orphaned_tracestate: tracestate.is_some() && !w3c,
            tracestate: tracestate.filter(|_| w3c).and_then(recordable),
            origin: found.origin,
            malformed,
        }
    }

    /// Header changes that make this proxy's span the parent of what follows. None at all for an
    /// unsampled trace: no span of ours will exist, so the caller's stays the parent.
    pub fn edits(&self) -> Vec<Edit> {
        if !self.sampled {
            return Vec::new();
        }
        let mut edits = vec![(HTTP_HEADER_TRACEPARENT, Some(self.traceparent()))];
        if self.orphaned_tracestate {
            edits.push((HTTP_HEADER_TRACESTATE, None));
        }
        match self.origin {
            Origin::Started | Origin::W3c => {}
            Origin::B3Single => {
                let value = b3::format_single(&self.trace_id, &self.span_id, self.sampled);
                edits.push((b3::SINGLE, Some(value)));
            }
            Origin::B3Multi => edits.extend(self.b3_multi_edits()),
        }
        edits
    }

    /// This proxy's span as a version 00 traceparent.
    pub fn traceparent(&self) -> String {
        let mut out = String::with_capacity(55);
        out.push_str("00-");
        hex::encode(&self.trace_id, &mut out);
        out.push('-');
        hex::encode(&self.span_id, &mut out);
        out.push_str(if self.sampled { "-01" } else { "-00" });
        out
    }

    fn b3_multi_edits(&self) -> [Edit; 3] {
        let (mut trace, mut span) = (String::with_capacity(32), String::with_capacity(16));
        hex::encode(&self.trace_id, &mut trace);
        hex::encode(&self.span_id, &mut span);
        [(b3::TRACE_ID, Some(trace)), (b3::SPAN_ID, Some(span)), (b3::PARENT_SPAN_ID, None)]
    }
}

fn read_w3c(header: &impl Fn(&str) -> Option<Vec<u8>>, malformed: &mut bool) -> Option<Found> {
    let value = header(HTTP_HEADER_TRACEPARENT)?;
    let parsed = parse_traceparent(&value);
    *malformed |= parsed.is_none();
    let (trace, span, flags) = parsed?;
    Some(Found { parent: Some((trace, span)), sampled: flags & SAMPLED != 0, origin: Origin::W3c })
}

fn read_b3(header: &impl Fn(&str) -> Option<Vec<u8>>, malformed: &mut bool) -> Option<Found> {
    let (parsed, origin) = if let Some(value) = header(b3::SINGLE) {
        (b3::parse_single(&value), Origin::B3Single)
    } else {
        let (trace, sampled) = (header(b3::TRACE_ID), header(b3::SAMPLED));
        if trace.is_none() && sampled.is_none() {
            return None;
        }
        let (span, flags) = (header(b3::SPAN_ID), header(b3::FLAGS));
        let parsed = b3::parse_multi(trace.as_deref(), span.as_deref(), sampled.as_deref(), flags.as_deref());
        (parsed, Origin::B3Multi)
    };
    *malformed |= parsed.is_none();
    parsed.map(|b3| Found { parent: b3.parent, sampled: b3.sampled, origin })
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

fn recordable(value: Vec<u8>) -> Option<String> {
    let plain = value.iter().all(|byte| (0x20..0x7f).contains(byte));
    (plain && value.len() <= TRACESTATE_MAX).then(|| String::from_utf8(value).ok()).flatten()
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
