use super::*;
use proptest::prelude::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn read(headers: &[(&str, &str)]) -> TraceContext {
    let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_bytes().to_vec());
    TraceContext::read(header, &mut Ids::from_weak_seed(42))
}

fn edited<'a>(edits: &'a [Edit], name: &str) -> Option<&'a Option<String>> {
    edits.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
}

/// A trace is continued: same trace, the caller as parent, our span as the parent of what follows.
#[test]
fn continues_w3c() {
    let context = read(&[("traceparent", TRACEPARENT), ("tracestate", "a=1,b=2")]);
    assert_eq!(context.origin, Origin::W3c);
    assert_eq!(context.parent, Some([0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
    assert_eq!(context.tracestate.as_deref(), Some("a=1,b=2"));
    let (trace, parent, flags) = parse_traceparent(context.traceparent().as_bytes()).unwrap();
    assert_eq!((trace, parent, flags), (context.trace_id, context.span_id, 1));
    let edits = context.edits();
    assert_eq!(edits.len(), 1, "tracestate travels on untouched: {edits:?}");
}

/// traceparent wins over B3, and then B3 is not touched.
#[test]
fn w3c_before_b3() {
    let context = read(&[("traceparent", TRACEPARENT), ("b3", "0")]);
    assert!(context.sampled);
    assert_eq!(edited(&context.edits(), "b3"), None);
}

/// An unsampled trace gets no span, so its headers stay as they are.
#[test]
fn unsampled_is_left_alone() {
    for headers in [[("traceparent", TRACEPARENT.replace("-01", "-00"))], [("b3", "0".to_string())]] {
        let [(name, value)] = &headers;
        let context = read(&[(name, value)]);
        assert!(!context.sampled, "{name}");
        assert!(context.edits().is_empty());
    }
}

/// Without usable headers a sampled trace is started and a stray tracestate does not travel on.
#[test]
fn starts_a_trace() {
    let context = read(&[("tracestate", "a=1")]);
    assert_eq!((context.origin, context.parent, context.sampled), (Origin::Started, None, true));
    assert_eq!(edited(&context.edits(), "tracestate"), Some(&None));
    assert!(!context.malformed);
}

/// B3 input is continued, and rewritten beside traceparent for applications that propagate B3.
#[test]
fn continues_b3() {
    let (trace, span) = ("80f198ee56343ba864fe8b2a57d3eff7", "e457b5a2e4d86bd1");
    let single = read(&[("b3", &format!("{trace}-{span}-1"))]);
    let multi = read(&[("x-b3-traceid", trace), ("x-b3-spanid", span), ("x-b3-sampled", "1")]);
    for context in [&single, &multi] {
        assert!(context.traceparent().starts_with(&format!("00-{trace}-")));
        assert_eq!(context.parent, hex::decode(span.as_bytes(), false));
    }
    assert!(edited(&single.edits(), "b3").is_some());
    assert_eq!(edited(&multi.edits(), "x-b3-parentspanid"), Some(&None));
}

/// What the specification calls invalid is refused and counted, and a new trace is started.
#[test]
fn malformed_is_counted() {
    for value in [
        "",
        "00",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
    ] {
        let context = read(&[("traceparent", value)]);
        assert!(context.malformed, "{value:?}");
        assert_eq!(context.origin, Origin::Started);
    }
    assert!(!read(&[("traceparent", &format!("{}-extra", TRACEPARENT.replacen("00", "cc", 1)))]).malformed);
}

proptest! {
    /// No bytes in any trace header make the parser fail, and whatever comes out can be sent on.
    #[test]
    fn any_bytes_are_survived(
        traceparent in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        tracestate in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..600)),
        b3 in proptest::option::of("[0-9a-fd-]{0,80}"),
        trace in proptest::option::of("[0-9a-f]{14,34}"),
        seed in any::<u64>(),
    ) {
        let header = |name: &str| match name {
            "traceparent" => traceparent.clone(),
            "tracestate" => tracestate.clone(),
            "b3" => b3.clone().map(String::into_bytes),
            "x-b3-traceid" | "x-b3-spanid" => trace.clone().map(String::into_bytes),
            _ => None,
        };
        let context = TraceContext::read(header, &mut Ids::from_weak_seed(seed));
        let sent = parse_traceparent(context.traceparent().as_bytes());
        prop_assert_eq!(sent, Some((context.trace_id, context.span_id, u8::from(context.sampled))));
    }

    /// Every valid traceparent is continued, with its flags' sampled bit and nothing else.
    #[test]
    fn every_valid_traceparent_is_continued(
        version in 0u8..0xff, trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), flags in any::<u8>(),
    ) {
        prop_assume!(trace != [0; 16] && span != [0; 8]);
        let mut text = format!("{version:02x}-");
        hex::encode(&trace, &mut text);
        text.push('-');
        hex::encode(&span, &mut text);
        text.push_str(&format!("-{flags:02x}"));
        let context = read(&[("traceparent", &text)]);
        prop_assert_eq!(context.trace_id, trace);
        prop_assert_eq!(context.parent, Some(span));
        prop_assert_eq!(context.sampled, flags & 1 == 1);
        prop_assert_ne!(context.span_id, span);
    }
}
