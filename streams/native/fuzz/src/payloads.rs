//! Fuzz targets of whole messages.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wire};
use prost::Message;
use spillway_spans::classes::class_id::is_class_id;
use spillway_spans::counters::Counters;
use spillway_spans::decode::keys::KEYS;
use spillway_spans::decode::otlp::{Decoder, PayloadError, Rejected};
use spillway_spans::decode::sampling::MAX_COUNT;
use spillway_spans::memory::names::Names;
use spillway_spans::span::{Kind, Span};

const NOW_US: i64 = 1_700_000_100_000_000;
const LONGEST_US: i64 = 3_600_000_000;
type Read = Result<Vec<Rejected>, PayloadError>;

fn decode(payload: &[u8], decoder: &mut Decoder, names: &mut Names) -> (Read, Vec<Span>) {
    let (mut spans, mut counters) = (Vec::new(), Counters::default());
    let read = decoder.decode(payload, NOW_US, None, names, &mut spans, &mut counters);
    assert!(read.is_ok() || spans.is_empty());
    for span in &spans {
        check(span, names);
    }
    (read, spans)
}

/// Checks the properties of a decoded span that all later stages rely on.
fn check(span: &Span, names: &Names) {
    assert!(span.trace_id != 0 && span.span_id != 0);
    assert!((0..=LONGEST_US).contains(&span.duration_us) && span.started_us <= NOW_US + 60_000_000);
    assert!([span.arrival_rate, span.class_arrival_rate].iter().all(|rate| (0.0..=1e9).contains(rate)));
    assert!(span.network_us.is_none_or(|time_us| time_us <= LONGEST_US as u64));
    assert!((1.0..=MAX_COUNT).contains(&span.adjusted_count));
    let [cluster, service, class] = [span.cluster, span.service, span.class].map(|sym| names.text(sym));
    assert!(!cluster.is_empty() && is_class_id(&format!("{service} GET /")));
    assert!(class.is_empty() || is_class_id(class));
    assert!(span.kind != Kind::Server || !span.class.is_none() || !span.template.is_none());
    if !span.template.is_none() {
        let class = format!("{service} {} {}", names.text(span.method), names.text(span.template));
        assert!(is_class_id(&class), "{class}");
    }
    let texts = [
        span.name,
        span.source_cluster,
        span.source_service,
        span.destination_cluster,
        span.destination_service,
    ];
    assert!(texts.iter().all(|sym| names.text(*sym).len() <= 253));
}

/// Every message that the published types decode as a request is accepted.
///
/// Each of its spans is decoded or rejected. A rejected part is a request again, and is rejected
/// for the same reason.
pub fn request(data: &[u8]) {
    let (read, spans) = decode(data, &mut Decoder::default(), &mut Names::default());
    let theirs = ExportTraceServiceRequest::decode(data);
    let Ok(rejected) = read else { return assert!(theirs.is_err()) };
    for part in &rejected {
        let (again, _) = decode(&part.request, &mut Decoder::default(), &mut Names::default());
        let again = again.expect("a request");
        assert_eq!(
            again.iter().map(|repeat| (&repeat.reason, repeat.spans)).collect::<Vec<_>>(),
            [(&part.reason, part.spans)]
        );
    }
    let Ok(theirs) = theirs else { return };
    let scopes = theirs.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    let sent: usize = scopes.map(|scope| scope.spans.len()).sum();
    let kept = |part: &&Rejected| !part.reason.starts_with("server span without");
    let refused: u64 = rejected.iter().filter(kept).map(|part| part.spans).sum();
    assert_eq!(sent as u64, spans.len() as u64 + refused);
}

/// Decodes a span whose attributes are made from the input.
///
/// Each attribute is a byte for the key, one for the type, one for the length, and the value.
pub fn attributes(data: &[u8]) {
    let (mut attributes, mut rest) = (Vec::new(), data);
    while let [key, kind, length, after @ ..] = rest {
        let (value, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        let key = KEYS.get(usize::from(*key) % (KEYS.len() + 1)).unwrap_or(&"unknown");
        attributes.push(attribute(key, usize::from(*kind) % 10, value));
    }
    let kind = data.len() as i32 % 6;
    let start = NOW_US as u64 * 1000;
    let wire = Wire {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        name: String::from_utf8_lossy(rest).into_owned(),
        kind,
        start_time_unix_nano: start,
        end_time_unix_nano: start + 1_000_000,
        attributes,
        ..Wire::default()
    };
    request(&export(wire).encode_to_vec());
}

fn attribute(key: &str, kind: usize, value: &[u8]) -> KeyValue {
    let number = value.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let value = match kind {
        0..=4 => Value::StringValue(String::from_utf8_lossy(value).into_owned()),
        5..=6 => Value::IntValue(number as i64),
        7 => Value::DoubleValue(f64::from_bits(number)),
        8 => Value::BoolValue(number & 1 == 1),
        _ => Value::BytesValue(value.into()),
    };
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

fn export(span: Wire) -> ExportTraceServiceRequest {
    let identity = [("service.name", "a"), ("k8s.cluster.name", "c")];
    let attributes = identity.map(|(key, name)| attribute(key, 0, name.as_bytes())).into();
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
}

/// The state of a decoder does not affect its result.
///
/// After any other payload, and after strings were forgotten, a payload decodes as in a new
/// decoder. The first two bytes are the first payload's length.
pub fn caches(data: &[u8]) {
    let [high, low, both @ ..] = data else { return };
    let (first, second) = both.split_at(both.len().min(usize::from(*high) << 8 | usize::from(*low)));
    let (mut decoder, mut names) = Default::default();
    let (_, mut held) = decode(first, &mut decoder, &mut names);
    let warm = decode_texts(second, &mut decoder, &mut names);
    names.compact(held.iter_mut().flat_map(|span| span.syms_mut()));
    let compacted = decode_texts(second, &mut decoder, &mut names);
    let cold = decode_texts(second, &mut Decoder::default(), &mut Names::default());
    assert!(warm == cold && compacted == cold);
    for span in &held {
        check(span, &names);
    }
}

/// Decodes a payload. Returns the spans with their strings, and the rejected parts.
fn decode_texts(
    payload: &[u8],
    decoder: &mut Decoder,
    names: &mut Names,
) -> (Read, Vec<(Span, Vec<String>)>) {
    let (read, spans) = decode(payload, decoder, names);
    let with_texts = |mut span: Span| {
        let texts = span.syms_mut().into_iter().map(|sym| names.text(std::mem::take(sym)).to_string());
        let texts = texts.collect();
        (span, texts)
    };
    (read, spans.into_iter().map(with_texts).collect())
}
