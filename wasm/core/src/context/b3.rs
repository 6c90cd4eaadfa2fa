//! Parser and formatter of B3 propagation headers, in the single and the multi form.
//!
//! Source: <https://github.com/openzipkin/b3-propagation>.

use crate::context::hex;
use crate::context::ids::{SpanId, TraceId};
use crate::short::Short;

/// Single header: `{trace id}-{span id}[-{sampling}[-{parent span id}]]`, or a sampling state
/// alone.
pub const SINGLE: &str = "b3";
/// Multi header: trace id, 16 or 32 hexadecimal digits.
pub const TRACE_ID: &str = "x-b3-traceid";
/// Multi header: span id of the caller.
pub const SPAN_ID: &str = "x-b3-spanid";
/// Multi header: the parent of the caller's span. It is stale once this proxy replaces the span id,
/// so the filter removes it.
pub const PARENT_SPAN_ID: &str = "x-b3-parentspanid";
/// Multi header: `1` or `0`.
pub const SAMPLED: &str = "x-b3-sampled";
/// Multi header: `1` means debug, which implies sampled.
pub const FLAGS: &str = "x-b3-flags";

/// The caller's decision about recording the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Record the trace.
    Accept,
    /// Do not record the trace.
    Deny,
    /// Record the trace, whatever any sampler decides.
    Debug,
    /// No decision. The next participant in the trace decides.
    Deferred,
}

/// The content of the B3 headers of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct B3 {
    /// The trace id and the caller's span id. None when the headers carry only a sampling state.
    pub parent: Option<(TraceId, SpanId)>,
    /// Whether spans are to be recorded.
    pub sampling: Sampling,
}

/// Parses the `b3` header. Returns None when the header is malformed.
pub fn parse_single(value: &[u8]) -> Option<B3> {
    if let Some(sampling) = state(value) {
        return Some(B3 { parent: None, sampling });
    }
    let mut parts = value.split(|byte| *byte == b'-');
    let parent = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    let sampling = parts.next().map_or(Some(Sampling::Deferred), state)?;
    if let Some(grandparent) = parts.next() {
        span_id(grandparent)?;
    }
    parts.next().is_none().then_some(B3 { parent: Some(parent), sampling })
}

/// Parses the multi headers; an absent header is passed as None.
///
/// Returns None when a value is malformed, or when only one of trace id and span id is present.
pub fn parse_multi(
    trace: Option<&[u8]>,
    span: Option<&[u8]>,
    sampled: Option<&[u8]>,
    flags: Option<&[u8]>,
) -> Option<B3> {
    let sampled = sampled.map_or(Some(Sampling::Deferred), state)?;
    let sampling = if is_debug(flags) { Sampling::Debug } else { sampled };
    match (trace, span) {
        (Some(trace), Some(span)) => Some(B3 { parent: Some((trace_id(trace)?, span_id(span)?)), sampling }),
        (None, None) => Some(B3 { parent: None, sampling }),
        _ => None,
    }
}

/// Whether `x-b3-flags` asks for debugging. Any value other than `1` has no meaning.
pub fn is_debug(flags: Option<&[u8]>) -> bool {
    flags == Some(b"1".as_slice())
}

/// Formats trace id, span id and sampling state as one `b3` header.
pub fn format_single(trace_id: &TraceId, span_id: &SpanId, sampling: Sampling) -> Short<51> {
    let mut out = Short::default();
    out.push_hex(trace_id).push("-").push_hex(span_id).push(match sampling {
        Sampling::Accept => "-1",
        Sampling::Deny => "-0",
        Sampling::Debug => "-d",
        Sampling::Deferred => "",
    });
    out
}

/// Parses a sampling state. Older libraries send `true` and `false`.
fn state(text: &[u8]) -> Option<Sampling> {
    match text {
        b"1" => Some(Sampling::Accept),
        b"0" => Some(Sampling::Deny),
        b"d" => Some(Sampling::Debug),
        _ if text.eq_ignore_ascii_case(b"true") => Some(Sampling::Accept),
        _ if text.eq_ignore_ascii_case(b"false") => Some(Sampling::Deny),
        _ => None,
    }
}

fn trace_id(text: &[u8]) -> Option<TraceId> {
    let id = match text.len() {
        // B3 and OpenTelemetry require that 64-bit trace ids are padded with zeros on the left.
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

    /// Every form of the single header in the specification parses, and formats as it was.
    #[test]
    fn single_header_shapes() {
        let with = |tail: &str| parse_single(format!("{TRACE}-{SPAN}{tail}").as_bytes());
        for (tail, sampling, written) in [
            ("", Sampling::Deferred, ""),
            ("-1", Sampling::Accept, "-1"),
            ("-d", Sampling::Debug, "-d"),
            ("-0", Sampling::Deny, "-0"),
            ("-1-05e3ac9a4f6e3b90", Sampling::Accept, "-1"),
        ] {
            let b3 = with(tail).unwrap();
            assert_eq!(b3.sampling, sampling, "{tail}");
            let (trace, span) = b3.parent.unwrap();
            assert_eq!(&*format_single(&trace, &span, sampling), format!("{TRACE}-{SPAN}{written}"));
        }
        assert_eq!(parse_single(b"0"), Some(B3 { parent: None, sampling: Sampling::Deny }));
        for tail in ["-", "-x", "-1-", "-1-05e3ac9a4f6e3b90-"] {
            assert_eq!(with(tail), None, "{tail}");
        }
    }

    /// A 64-bit trace id is padded on the left. One id without the other and an unreadable state
    /// are malformed. The debug flag overrides the state, and is sufficient alone.
    #[test]
    fn multi_header_shapes() {
        let (trace, span) = (Some(TRACE.as_bytes()), Some(SPAN.as_bytes()));
        let short = parse_multi(Some(b"64fe8b2a57d3eff7"), span, None, None).unwrap();
        let (padded, _) = short.parent.unwrap();
        assert_eq!(padded[..8], [0; 8]);
        assert_eq!(padded[8], 0x64);
        assert_eq!(short.sampling, Sampling::Deferred);
        assert_eq!(parse_multi(trace, None, Some(b"1"), None), None);
        assert_eq!(parse_multi(trace, span, Some(b"maybe"), None), None);
        for (flags, sampling) in [(b"1".as_slice(), Sampling::Debug), (b"0", Sampling::Deny)] {
            assert_eq!(parse_multi(trace, span, Some(b"0"), Some(flags)).unwrap().sampling, sampling);
        }
        let alone = B3 { parent: None, sampling: Sampling::Debug };
        assert_eq!(parse_multi(None, None, None, Some(b"1")), Some(alone));
        assert_eq!(parse_multi(trace, span, Some(b"True"), None).unwrap().sampling, Sampling::Accept);
    }
}
