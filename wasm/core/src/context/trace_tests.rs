use super::*;
use crate::request::headers::RequestHeaders;
use crate::testing::hex;
use proptest::prelude::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
const SPAN: &str = "e457b5a2e4d86bd1";
const B3: &str = "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1";

/// Reads the headers as the proxy returns them. The context is leaked, so it outlives the test.
fn read_with(ratio: f64, headers: &[(&str, &str)]) -> TraceContext<'static> {
    let owned: Vec<(Vec<u8>, Vec<u8>)> =
        headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
    let pairs = owned.leak().iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let sampler = Box::leak(Box::new(Sampler::new(ratio)));
    TraceContext::read(&RequestHeaders::read(pairs).trace, sampler, &mut Ids::from_weak_seed(42))
}

fn read(headers: &[(&str, &str)]) -> TraceContext<'static> {
    read_with(1.0, headers)
}

fn edits(context: &TraceContext<'_>) -> Vec<(&'static str, Option<String>)> {
    let mut all = Vec::new();
    context.edits(|name, value| all.push((name, value.map(str::to_string))));
    all
}

fn edited(context: &TraceContext<'_>, name: &str) -> Option<Option<String>> {
    edits(context).into_iter().find(|(n, _)| *n == name).map(|(_, value)| value)
}

/// Nothing of an anonymous caller's trace is forwarded. The trace is new, sampled by this proxy,
/// and carries no `tracestate` of the caller. B3 headers, in the forms that arrived, agree with
/// `traceparent`.
#[test]
fn an_anonymous_caller_starts_a_trace() {
    let claims = [
        ("traceparent", TRACEPARENT.replace("-01", "-00")),
        ("tracestate", "ot=th:fffff".to_string()),
        ("b3", format!("{TRACE}-{SPAN}-d")),
        ("x-b3-flags", "1".to_string()),
    ];
    let lines = || claims.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    for (ratio, state) in [(1.0, None), (0.5, Some("ot=th:8"))] {
        let sampler = Sampler::new(ratio);
        let mut ids = Ids::from_weak_seed(1);
        let headers = RequestHeaders::read(lines());
        let context = std::iter::repeat_with(|| TraceContext::of(true, &headers.trace, &sampler, &mut ids))
            .find(|context| context.sampled)
            .unwrap();
        assert_eq!((context.parent, context.origin, context.malformed), (None, Origin::Started, false));
        assert_eq!(context.tracestate.as_deref(), state);
        assert_eq!(edited(&context, "tracestate"), Some(state.map(str::to_string)));
        let (trace, ours) = (hex(&context.trace_id), hex(&context.span_id));
        assert!(!TRACEPARENT.contains(&trace) && trace != TRACE);
        assert_eq!(edited(&context, "traceparent"), Some(Some(format!("00-{trace}-{ours}-03"))));
        assert_eq!(edited(&context, "b3"), Some(Some(format!("{trace}-{ours}-1"))));
        assert_eq!(edited(&context, "x-b3-flags"), Some(None));
    }
    let sampler = Sampler::new(0.0);
    let headers = RequestHeaders::read(lines());
    let context = TraceContext::of(true, &headers.trace, &sampler, &mut Ids::from_weak_seed(1));
    assert!(edited(&context, "traceparent").flatten().unwrap().ends_with("-02"));
    assert_eq!(edited(&context, "tracestate"), Some(None));
}

/// A trace is continued: the trace id stays, the caller's span is the parent, and this proxy's span
/// is the parent of later spans.
#[test]
fn continues_w3c() {
    let context = read(&[("traceparent", TRACEPARENT), ("tracestate", "a=1,b=2")]);
    assert_eq!(context.origin, Origin::W3c);
    assert_eq!(context.parent, Some([0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
    assert_eq!(context.tracestate.as_deref(), Some("a=1,b=2"));
    let (trace, parent, flags) = parse_traceparent(context.traceparent().as_bytes()).unwrap();
    assert_eq!((trace, parent, flags), (context.trace_id, context.span_id, 1));
    assert_eq!(edits(&context).len(), 1, "tracestate travels on untouched");
}

/// `traceparent` wins over B3. The B3 headers are then rewritten to agree, so an application that
/// propagates only B3 also continues from this proxy's span.
#[test]
fn w3c_before_b3() {
    let ours = |context: &TraceContext<'_>, sampling| {
        Some(Some(format!("{}-{}{sampling}", hex(&context.trace_id), hex(&context.span_id))))
    };
    for (b3, sampling) in [("0", "-1"), (B3, "-1"), ("garbage", "-1"), ("d", "-d")] {
        let context = read(&[("traceparent", TRACEPARENT), ("b3", b3)]);
        assert!(context.sampled && context.origin == Origin::W3c);
        assert_eq!(edited(&context, "b3"), ours(&context, sampling), "{b3}");
        assert_eq!(context.malformed, b3 == "garbage");
        assert_eq!(edits(&context).len(), 2, "no header that did not come");
    }
    let multi = [("traceparent", TRACEPARENT), ("x-b3-traceid", "64fe8b2a57d3eff7"), ("x-b3-spanid", SPAN)];
    let context = read(&multi);
    assert_eq!(edited(&context, "x-b3-traceid"), Some(Some(hex(&context.trace_id))));
    assert_eq!(edited(&context, "x-b3-spanid"), Some(Some(hex(&context.span_id))));
    assert_eq!(edited(&context, "x-b3-sampled"), Some(Some("1".to_string())));
    assert_eq!(edited(&context, "b3"), None);
    let malformed = read(&[("traceparent", "00"), ("b3", B3)]);
    assert!(malformed.malformed && malformed.origin == Origin::B3, "and where it is no trace, B3 is");
}

/// A malformed `b3` header does not hide `x-b3-*`. A trace is started only if neither parses, and
/// then all forms that arrived are rewritten.
#[test]
fn one_malformed_b3_does_not_hide_the_other() {
    let multi = [("b3", "x"), ("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "1")];
    let context = read(&multi);
    assert_eq!((context.origin, context.malformed), (Origin::B3, true));
    assert_eq!(hex(&context.trace_id), TRACE);
    assert!(edited(&context, "b3").is_some() && edited(&context, "x-b3-traceid").is_some());
    for state in ["", "maybe"] {
        let context = read(&[("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", state)]);
        assert_eq!((context.origin, context.malformed), (Origin::Started, true), "{state:?}");
        assert_eq!(edited(&context, "x-b3-traceid"), Some(Some(hex(&context.trace_id))));
    }
}

/// Debug stays debug, in either form and alone. A caller that only asks for recording gets a new
/// random trace id.
#[test]
fn b3_states_without_ids() {
    for (name, value, again) in [("b3", "d", "-d"), ("b3", "1", "-1"), ("b3", "true", "-1")] {
        let context = read_with(0.0, &[(name, value)]);
        assert!(context.sampled && context.parent.is_none(), "{value}");
        assert!(edited(&context, "b3").flatten().unwrap().ends_with(again), "{value}");
        assert!(context.traceparent().ends_with("-03"));
    }
    let debug = read_with(0.0, &[("x-b3-flags", "1")]);
    assert!(debug.sampled && debug.origin == Origin::B3);
    assert_eq!(edited(&debug, "x-b3-flags"), Some(Some("1".to_string())));
    assert_eq!(edited(&debug, "x-b3-sampled"), Some(None), "the flag says it");
    let silent = read_with(0.0, &[("x-b3-flags", "0")]);
    assert_eq!((silent.origin, silent.malformed), (Origin::Started, false));
}

/// When the caller left the decision open, the sampler decides. The decision is forwarded in every
/// form that arrived. If it is negative, the caller's span stays the parent.
#[test]
fn b3_without_a_decision_is_sampled_by_ratio() {
    let undecided = format!("{TRACE}-{SPAN}");
    let multi = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("tracestate", "stray=1")];
    for (ratio, sampled) in [(0.0, false), (0.5, true), (1.0, true)] {
        let context = read_with(ratio, &[("b3", &undecided)]);
        assert_eq!(context.sampled, sampled, "{ratio}");
        let parent = if sampled { hex(&context.span_id) } else { SPAN.to_string() };
        let digit = u8::from(sampled);
        assert_eq!(edited(&context, "b3"), Some(Some(format!("{TRACE}-{parent}-{digit}"))));
        assert_eq!(edited(&context, "traceparent"), Some(Some(format!("00-{TRACE}-{parent}-0{digit}"))));
        let context = read_with(ratio, &multi);
        assert_eq!(context.sampled, sampled, "{ratio}");
        assert_eq!(edited(&context, "x-b3-sampled"), Some(Some(digit.to_string())));
        let expected = (ratio == 0.5).then(|| "ot=th:8".to_string());
        assert_eq!(context.tracestate.as_deref(), expected.as_deref());
        assert_eq!(edited(&context, "tracestate"), Some(expected));
    }
}

/// An unsampled trace gets no span, so its headers stay unchanged.
#[test]
fn unsampled_is_left_alone() {
    for headers in [[("traceparent", TRACEPARENT.replace("-01", "-00"))], [("b3", "0".to_string())]] {
        let [(name, value)] = &headers;
        let context = read(&[(name, value)]);
        assert!(!context.sampled, "{name}");
        assert!(edits(&context).is_empty());
    }
}

/// Without usable headers, a sampled trace is started and a stray tracestate is not forwarded.
#[test]
fn starts_a_trace() {
    let context = read(&[("tracestate", "a=1")]);
    assert_eq!((context.origin, context.parent, context.sampled), (Origin::Started, None, true));
    assert_eq!(edited(&context, "tracestate"), Some(None));
    assert!(!context.malformed);
}

/// B3 input is continued. It is rewritten beside traceparent for applications that propagate B3.
#[test]
fn continues_b3() {
    let single = read(&[("b3", B3)]);
    let multi = read(&[("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "1")]);
    for context in [&single, &multi] {
        assert!(context.traceparent().starts_with(&format!("00-{TRACE}-")));
        assert_eq!(context.parent, crate::context::hex::decode(SPAN.as_bytes(), false));
    }
    assert!(edited(&single, "b3").is_some());
    assert_eq!(edited(&multi, "x-b3-parentspanid"), Some(None));
}

/// A traceparent that the specification calls invalid is rejected and counted, and a new trace is
/// started.
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

/// Two traceparent headers count as malformed.
#[test]
fn several_traceparents_are_malformed() {
    let context = read(&[("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)]);
    assert!(context.malformed && context.origin == Origin::Started);
}

/// A kept trace that was started by ratio carries its threshold in `tracestate` and in its span. A
/// trace that is not kept is forwarded as unsampled, so no later proxy starts another. Both set the
/// flag of a random id.
#[test]
fn started_traces_are_sampled_by_ratio() {
    let half = read_with(0.5, &[("tracestate", "stray=1")]);
    let unsampled = read_with(0.0, &[("tracestate", "stray=1")]);
    let kept = half.sampled;
    assert_eq!(half.tracestate.as_deref(), kept.then_some("ot=th:8"));
    assert_eq!(edited(&half, "tracestate"), Some(kept.then(|| "ot=th:8".to_string())));
    let (_, _, flags) = parse_traceparent(half.traceparent().as_bytes()).unwrap();
    assert_eq!(flags, if kept { 3 } else { 2 });
    assert!(!unsampled.sampled && unsampled.tracestate.is_none());
    assert_eq!(edited(&unsampled, "tracestate"), Some(None));
    let (_, _, flags) =
        parse_traceparent(edited(&unsampled, "traceparent").unwrap().unwrap().as_bytes()).unwrap();
    assert_eq!(flags, 2);
    let next = edited(&unsampled, "traceparent").unwrap().unwrap();
    assert!(!read(&[("traceparent", &next)]).sampled, "the next proxy honours it");
}

/// A continued trace keeps its decision and its threshold, whatever the local ratio is.
#[test]
fn continued_decisions_are_honoured() {
    for ratio in [0.0, 0.5, 1.0] {
        let context = read_with(ratio, &[("traceparent", TRACEPARENT), ("tracestate", "ot=th:c")]);
        assert!(context.sampled);
        assert_eq!(context.tracestate.as_deref(), Some("ot=th:c"));
        assert_eq!(edited(&context, "tracestate"), None);
        assert!(!read_with(ratio, &[("traceparent", &TRACEPARENT.replace("-01", "-02"))]).sampled);
    }
}

proptest! {
    /// No bytes in any trace header make the parser fail. The resulting context can always be
    /// forwarded.
    #[test]
    fn any_bytes_are_survived(
        traceparent in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
        tracestate in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..600)),
        b3 in proptest::option::of("[0-9a-fd-]{0,80}"),
        trace in proptest::option::of("[0-9a-f]{14,34}"), state in proptest::option::of("[01dtrue]{0,4}"),
        seed in any::<u64>(), ratio in 0.0f64..=1.0,
    ) {
        let headers = TraceHeaders {
            traceparent: traceparent.as_deref(),
            tracestate: tracestate.as_deref(),
            b3: b3.as_ref().map(String::as_bytes),
            b3_trace: trace.as_ref().map(String::as_bytes),
            b3_span: trace.as_ref().map(String::as_bytes),
            b3_sampled: state.as_ref().map(String::as_bytes),
            b3_flags: state.as_ref().map(String::as_bytes),
            ..TraceHeaders::default()
        };
        let sampler = Sampler::new(ratio);
        let context = TraceContext::read(&headers, &sampler, &mut Ids::from_weak_seed(seed));
        let sent = parse_traceparent(context.traceparent().as_bytes());
        let parent = if context.sampled { context.span_id } else { context.parent.unwrap_or(context.span_id) };
        prop_assert_eq!(sent, Some((context.trace_id, parent, context.flags())));
        for (_, value) in edits(&context) {
            prop_assert!(value.is_none_or(|value| value.bytes().all(|byte| (0x20..0x7f).contains(&byte))));
        }
    }

    /// Any B3 trace is recovered from the forwarded headers, as B3 and as traceparent.
    #[test]
    fn b3_round_trip(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), multi: bool) {
        prop_assume!(trace != [0; 16] && span != [0; 8]);
        let (trace_text, span_text) = (hex(&trace), hex(&span));
        let single = format!("{trace_text}-{span_text}-1");
        let context = if multi {
            read(&[("x-b3-traceid", &trace_text), ("x-b3-spanid", &span_text), ("x-b3-sampled", "1")])
        } else {
            read(&[("b3", &single)])
        };
        prop_assert_eq!((context.trace_id, context.parent), (trace, Some(span)));
        let sent = edits(&context);
        let again: Vec<_> = sent.iter().filter(|(name, _)| *name != "traceparent")
            .filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let next = read(&again);
        prop_assert_eq!((next.trace_id, next.parent, next.malformed), (trace, Some(context.span_id), false));
    }

    /// Every valid traceparent is continued, and only the sampled bit of its flags decides
    /// sampling.
    #[test]
    fn every_valid_traceparent_is_continued(
        version in 0u8..0xff, trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), flags in any::<u8>(),
    ) {
        prop_assume!(trace != [0; 16] && span != [0; 8]);
        let text = format!("{version:02x}-{}-{}-{flags:02x}", hex(&trace), hex(&span));
        let context = read(&[("traceparent", &text)]);
        prop_assert_eq!(context.trace_id, trace);
        prop_assert_eq!(context.parent, Some(span));
        prop_assert_eq!(context.sampled, flags & 1 == 1);
        prop_assert_ne!(context.span_id, span);
    }
}
