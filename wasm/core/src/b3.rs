//! B3 propagation headers, single and multi, as input.
//! Source: <https://github.com/openzipkin/b3-propagation>.

use crate::hex;
use crate::ids::{SpanId, TraceId};
use crate::short::Short;

/// Single header: `{trace id}-{span id}[-{sampling}[-{parent span id}]]`, or only a sampling state.
pub const SINGLE: &str = "b3";
/// Multi header: trace id, 16 or 32 digits.
pub const TRACE_ID: &str = "x-b3-traceid";
/// Multi header: span id of the caller.
pub const SPAN_ID: &str = "x-b3-spanid";
/// Multi header: the caller's own parent. Stale once the span id is ours, so it is removed then.
pub const PARENT_SPAN_ID: &str = "x-b3-parentspanid";
/// Multi header: `1` or `0`.
pub const SAMPLED: &str = "x-b3-sampled";
/// Multi header: `1` means debug, which implies sampled.
pub const FLAGS: &str = "x-b3-flags";

/// What B3 headers say: who called, and whether the trace is recorded (undecided counts as yes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct B3 {
    /// Trace and caller's span; absent when only a sampling state is sent.
    pub parent: Option<(TraceId, SpanId)>,
    /// Whether spans are recorded.
    pub sampled: bool,
}

/// Reads the `b3` header; None where it is malformed.
pub fn parse_single(value: &[u8]) -> Option<B3> {
    if let Some(sampled) = sampling(value) {
        return Some(B3 { parent: None, sampled });
    }
    let mut parts = value.split(|byte| *byte == b'-');
    let parent = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    let sampled = match parts.next() {
        Some(state) => sampling(state)?,
        None => true,
    };
    if let Some(grandparent) = parts.next() {
        span_id(grandparent)?;
    }
    parts.next().is_none().then_some(B3 { parent: Some(parent), sampled })
}

/// Reads the multi headers, each None where absent; None where they are malformed or incomplete.
pub fn parse_multi(
    trace: Option<&[u8]>,
    span: Option<&[u8]>,
    sampled: Option<&[u8]>,
    flags: Option<&[u8]>,
) -> Option<B3> {
    let debug = flags == Some(b"1".as_slice());
    let sampled = debug || sampled.is_none_or(|state| sampling(state).unwrap_or(true));
    match (trace, span) {
        (Some(trace), Some(span)) => Some(B3 { parent: Some((trace_id(trace)?, span_id(span)?)), sampled }),
        (None, None) => Some(B3 { parent: None, sampled }),
        _ => None,
    }
}

/// Trace id, span id and state as one `b3` header.
pub fn format_single(trace_id: &TraceId, span_id: &SpanId, sampled: bool) -> Short<51> {
    let mut out = Short::default();
    out.push_hex(trace_id).push("-").push_hex(span_id).push(if sampled { "-1" } else { "-0" });
    out
}

fn sampling(state: &[u8]) -> Option<bool> {
    match state {
        b"1" | b"d" | b"true" => Some(true),
        b"0" | b"false" => Some(false),
        _ => None,
    }
}

fn trace_id(text: &[u8]) -> Option<TraceId> {
    let id = match text.len() {
        // 64-bit trace ids are left-padded, as OTel and B3 ask.
        16 => {
            let short: [u8; 8] = hex::decode(text, true)?;
            let mut id = [0; 16];
            for (to, from) in id.iter_mut().rev().zip(short.iter().rev()) {
                *to = *from;
            }
            id
        }
        _ => hex::decode(text, true)?,
    };
    (id != [0; 16]).then_some(id)
}

fn span_id(text: &[u8]) -> Option<SpanId> {
    hex::decode(text, true).filter(|id| *id != [0; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
    const SPAN: &str = "e457b5a2e4d86bd1";

    /// Each shape of the single header that the specification shows is understood.
    #[test]
    fn single_header_shapes() {
        let with = |tail: &str| parse_single(format!("{TRACE}-{SPAN}{tail}").as_bytes());
        for (tail, sampled) in
            [("", true), ("-1", true), ("-d", true), ("-0", false), ("-1-05e3ac9a4f6e3b90", true)]
        {
            let b3 = with(tail).unwrap();
            assert_eq!(b3.sampled, sampled, "{tail}");
            assert!(b3.parent.is_some());
        }
        assert_eq!(parse_single(b"0"), Some(B3 { parent: None, sampled: false }));
        for tail in ["-", "-x", "-1-", "-1-05e3ac9a4f6e3b90-"] {
            assert_eq!(with(tail), None, "{tail}");
        }
    }

    /// A 64-bit trace id is padded on the left, and half a pair of ids is malformed.
    #[test]
    fn multi_header_shapes() {
        let short = parse_multi(Some(b"64fe8b2a57d3eff7"), Some(SPAN.as_bytes()), None, None).unwrap();
        let (trace, _) = short.parent.unwrap();
        assert_eq!(trace[..8], [0; 8]);
        assert_eq!(trace[8], 0x64);
        assert_eq!(parse_multi(Some(TRACE.as_bytes()), None, Some(b"1"), None), None);
        let debug = parse_multi(Some(TRACE.as_bytes()), Some(SPAN.as_bytes()), Some(b"0"), Some(b"1"));
        assert!(debug.unwrap().sampled);
    }
}
