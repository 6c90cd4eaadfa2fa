//! Fuzz targets of the trace context headers.

use spillway_filter_core::context::b3;
use spillway_filter_core::context::ids::Ids;
use spillway_filter_core::context::sampling::Sampler;
use spillway_filter_core::context::trace::{Origin, TraceContext, parse_traceparent};
use spillway_filter_core::context::tracestate::recordable;
use spillway_filter_core::request::headers::TraceHeaders;
use spillway_filter_core::testing::hex;

/// Splits the input into lines. An empty line stands for an absent header.
fn lines(data: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    data.split(|byte| *byte == b'\n').map(|line| Some(line).filter(|line| !line.is_empty()))
}

/// An accepted traceparent has no zero id, and the text contains exactly the parsed ids and flags.
pub fn traceparent(data: &[u8]) {
    let Some((trace, span, flags)) = parse_traceparent(data) else { return };
    assert!(trace != [0; 16] && span != [0; 8]);
    let parts = format!("-{}-{}-{flags:02x}", hex(&trace), hex(&span));
    let text = std::str::from_utf8(data.get(..55).expect("a shorter one has no ids")).expect("hexadecimal");
    assert_eq!(&text[2..], parts);
    assert_ne!(&text[..2], "ff");
    assert!(data.len() == 55 || (&text[..2] != "00" && data[55] == b'-'));
}

/// The recorded list is printable and within the limit. A printable short list is recorded
/// unchanged.
pub fn tracestate(data: &[u8]) {
    let all: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let [first, more @ ..] = all.as_slice() else { return };
    let printable = |line: &[u8]| line.iter().all(|byte| (0x20..0x7f).contains(byte));
    let recorded = recordable(first, more);
    if let Some(text) = &recorded {
        assert!(text.len() <= 512 && printable(text.as_bytes()));
    }
    if more.is_empty() && !first.is_empty() && first.len() <= 512 && printable(first) {
        assert_eq!(recorded.as_deref().map(str::as_bytes), Some(*first));
    }
}

/// An accepted header that is formatted again parses to the same value.
pub fn b3_single(data: &[u8]) {
    let Some(found) = b3::parse_single(data) else { return };
    let Some((trace, span)) = found.parent else { return };
    assert!(trace != [0; 16] && span != [0; 8]);
    let written = b3::format_single(&trace, &span, found.sampling);
    assert_eq!(b3::parse_single(written.as_bytes()), Some(found));
}

/// Ids come in pairs and are not zero. The sampling is Debug exactly when a header says so.
pub fn b3_multi(data: &[u8]) {
    let mut lines = lines(data);
    let [trace, span, sampled, flags] = std::array::from_fn(|_| lines.next().flatten());
    let Some(found) = b3::parse_multi(trace, span, sampled, flags) else { return };
    assert_eq!(found.parent.is_some(), trace.is_some() && span.is_some());
    assert!(found.parent.is_none_or(|(trace, span)| trace != [0; 16] && span != [0; 8]));
    assert_eq!(found.sampling == b3::Sampling::Debug, flags == Some(b"1") || sampled == Some(b"d"));
}

/// Whatever the headers say, the resulting context is usable.
///
/// It writes a valid traceparent, and a `b3` header that arrived is rewritten to agree. The span id
/// is new if a span will be recorded. If somebody else left the trace unsampled, the headers stay
/// unchanged.
pub fn headers(data: &[u8]) {
    let mut lines = lines(data);
    let mut next = || lines.next().flatten();
    let headers = TraceHeaders {
        traceparent: next(),
        b3: next(),
        b3_trace: next(),
        b3_span: next(),
        b3_sampled: next(),
        b3_flags: next(),
        tracestate: next(),
        more_tracestate: next().into_iter().collect(),
        several_traceparents: next().is_some(),
    };
    let (sampler, mut ids) = (Sampler::new(0.5), Ids::from_weak_seed(data.len() as u64));
    let context = TraceContext::read(&headers, &sampler, &mut ids);
    let written = context.traceparent().as_bytes().to_vec();
    let (trace, span, flags) = parse_traceparent(&written).expect("a traceparent of our own");
    let parent = context.parent.filter(|_| !context.sampled).unwrap_or(context.span_id);
    assert_eq!((trace, span, flags & 1 == 1), (context.trace_id, parent, context.sampled));
    assert_eq!(
        context.origin == Origin::W3c,
        headers.traceparent.and_then(parse_traceparent).is_some() && !headers.several_traceparents
    );
    let mut edited = Vec::new();
    context.edits(|name, value| edited.push((name, value.map(str::to_string))));
    if context.sampled || context.origin == Origin::Started || !edited.is_empty() {
        assert!(edited.contains(&("traceparent", String::from_utf8(written).ok())));
        let b3 = edited.iter().find(|(name, _)| *name == b3::SINGLE).and_then(|(_, value)| value.as_ref());
        assert_eq!(b3.is_some(), headers.b3.is_some());
        let parsed = b3.and_then(|value| b3::parse_single(value.as_bytes()));
        assert_eq!(parsed.map(|parsed| parsed.parent), b3.map(|_| Some((trace, parent))));
    } else {
        assert!(edited.is_empty());
    }
}
