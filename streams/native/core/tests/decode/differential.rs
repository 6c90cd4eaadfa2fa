//! Random requests, decoded here and with the published message types. Every field agrees.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Status;
use proptest::prelude::*;
use proptest::sample::select;
use prost::Message;
use spillway_spans::decode::keys::KEYS;
use spillway_spans::span::Kind;

use crate::payload::*;

/// Keys that are read, and two that are not.
fn keys() -> Vec<&'static str> {
    [KEYS, &["unknown", "spillway.load"]].concat()
}

const TEXTS: [&str; 20] = [
    "",
    "GET",
    "post",
    "a GET /x/{id}",
    "a get /x",
    "server",
    "OUTBOUND",
    "200",
    "0",
    "-0",
    " 17 ",
    "14",
    "/a/7?q",
    "http://b.ns.svc/p/1",
    "/u/:id",
    "b.ns.svc.cluster.local:80",
    "p.S",
    "grpc",
    "true",
    "18446744073709551616",
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => select(&TEXTS[..]).prop_map(IntoValue::into_value),
        1 => "\\PC{0,200}".prop_map(|text| text.as_str().into_value()),
        4 => select(&[0i64, 1, -1, 14, 127, 128, 500, 16_384, 70_000, 1 << 33, i64::MAX][..]).prop_map(IntoValue::into_value),
        1 => any::<f64>().prop_map(IntoValue::into_value),
        1 => (0.0..1e6f64).prop_map(IntoValue::into_value),
        1 => any::<bool>().prop_map(IntoValue::into_value),
        1 => proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::BytesValue),
        1 => Just(Value::ArrayValue(ArrayValue { values: vec![] })),
    ]
}

fn attributes(most: usize) -> impl Strategy<Value = Vec<KeyValue>> {
    proptest::collection::vec((select(keys()), value()).prop_map(|(key, value)| of(key, value)), 0..most)
}

fn wire() -> impl Strategy<Value = Wire> {
    let ids = (
        any::<[u8; 16]>(),
        any::<[u8; 8]>(),
        prop_oneof![Just(vec![]), any::<[u8; 8]>().prop_map(Vec::from)],
    );
    let name = prop_oneof![
        select(&["GET /x/1", "HTTP PUT /y", "/p.S/M", ""][..]).prop_map(String::from),
        "\\PC{0,90}"
    ];
    let state = select(&["", "ot=th:8", "a=b, ot=rv:1;th:c", "ot=th:?"][..]);
    let times = (START_NS - 9_999..START_NS + 9_999, 0..9_000_000u64);
    let kind = select(&[0, 1, 2, 2, 2, 3, 3, 4, 5, -3][..]);
    (ids, name, state, times, kind, 0..3i32, attributes(24), any::<u32>()).prop_map(
        |((trace, span, parent), name, state, (start, took), kind, code, attributes, flags)| Wire {
            trace_id: trace.into(),
            span_id: span.into(),
            parent_span_id: parent,
            name,
            trace_state: state.into(),
            kind,
            start_time_unix_nano: start,
            end_time_unix_nano: start + took,
            status: (code > 0).then(|| Status { message: "m".into(), code }),
            attributes,
            flags,
            ..Wire::default()
        },
    )
}

/// A simple reference decoder: the attributes as a map.
struct Reference(HashMap<String, Value>);

impl Reference {
    fn new(lists: [&[KeyValue]; 2]) -> Self {
        let scalar = |value: &Value| !matches!(value, Value::BytesValue(_) | Value::ArrayValue(_));
        let pairs = lists.into_iter().flatten();
        let values = pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?.value?)));
        Reference(values.filter(|(_, value)| scalar(value)).collect())
    }

    fn first(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.0.get(*key))
    }

    fn text(&self, keys: &[&str]) -> &str {
        match self.first(keys) {
            Some(Value::StringValue(text)) => text,
            _ => "",
        }
    }

    /// A name. A name that is too long counts as absent.
    fn label(&self, key: &str) -> &str {
        Some(self.text(&[key])).filter(|name| name.len() <= 253).unwrap_or_default()
    }

    fn whole(&self, keys: &[&str], limit: i128) -> Option<i128> {
        let number = match self.first(keys)? {
            Value::StringValue(text) => text.trim_ascii().parse().ok()?,
            Value::IntValue(number) => i128::from(*number),
            Value::DoubleValue(number) if number.is_finite() => number.trunc() as i128,
            Value::BoolValue(number) => i128::from(*number),
            _ => return None,
        };
        (0..=limit).contains(&number).then_some(number)
    }

    fn rate(&self, key: &str) -> f64 {
        let rate = match self.0.get(key) {
            Some(Value::DoubleValue(rate)) => *rate,
            Some(Value::IntValue(rate)) => *rate as f64,
            _ => 0.0,
        };
        if rate <= 1e9 { rate.max(0.0) } else { 0.0 }
    }

    fn kind(&self, number: i32) -> Kind {
        match (number, self.text(&["spillway.direction", "span.kind"]).to_lowercase().as_str()) {
            (4 | 5, _) => Kind::Internal,
            (2, _) => Kind::Server,
            (3, _) => Kind::Client,
            (_, "server" | "inbound") => Kind::Server,
            (_, "client" | "outbound") => Kind::Client,
            _ => Kind::Internal,
        }
    }

    fn outcome(&self, wire: &Wire) -> (u16, bool) {
        let keys = ["http.response.status_code", "http.status_code"];
        let status = self.whole(&keys, 0xffff);
        let rpc = ["rpc.grpc.status_code", "rpc.response.status_code", "grpc.status_code"];
        let fault = [2, 4, 12, 13, 14, 15].map(Some).contains(&self.whole(&rpc, i128::MAX));
        let error = match self.0.get("error") {
            Some(Value::StringValue(text)) => text == "true",
            Some(Value::BoolValue(error)) => *error,
            Some(Value::IntValue(number)) => *number == 1,
            Some(Value::DoubleValue(number)) => *number == 1.0,
            _ => false,
        };
        let code = wire.status.as_ref().is_some_and(|status| status.code == 2);
        let failed = code || status == Some(0) || status.unwrap_or(0) >= 500 || fault || error;
        (status.unwrap_or(0) as u16, failed)
    }
}

fn check(wire: &Wire, resource: &[KeyValue]) -> Result<(), TestCaseError> {
    let decoded = decode(&export(vec![wire.clone()], resource.to_vec()));
    let reference = Reference::new([resource, &wire.attributes]);
    let base = Reference::new([resource, &[]]);
    let cluster = match base.first(&["spillway.cluster"]) {
        Some(_) => base.text(&["spillway.cluster"]),
        None => reference.text(&["spillway.cluster", "k8s.cluster.name", "istio.cluster_id"]),
    };
    let service = match base.text(&["service.name"]) {
        "" => reference.text(&["istio.canonical_service"]),
        service => service,
    };
    let Some(span) = decoded.spans.first() else {
        let reason = &decoded.rejected[0].reason;
        let zero = wire.trace_id == [0; 16] || wire.span_id == [0; 8];
        let short = |name: &str| name.is_empty() || name.len() > 253 || !is_service(service);
        prop_assert!(zero || short(cluster) || short(service), "{}", reason);
        return Ok(());
    };
    let text = |sym| decoded.text(sym);
    prop_assert_eq!((text(span.cluster), text(span.service)), (cluster, service));
    prop_assert_eq!(span.trace_id.to_be_bytes().to_vec(), wire.trace_id.clone());
    prop_assert_eq!(span.span_id.to_be_bytes().to_vec(), wire.span_id.clone());
    let parent = if wire.parent_span_id.is_empty() { vec![0; 8] } else { wire.parent_span_id.clone() };
    prop_assert_eq!(span.parent_id.to_be_bytes().to_vec(), parent);
    prop_assert!(wire.name.starts_with(text(span.name)));
    prop_assert!(wire.name.len() > 253 || wire.name == text(span.name));
    let (start, end) = (wire.start_time_unix_nano / 1000, wire.end_time_unix_nano / 1000);
    prop_assert_eq!((span.started_us, span.duration_us), (start as i64, (end - start) as i64));
    prop_assert_eq!((span.status, span.failed), reference.outcome(wire));
    let kind = reference.kind(wire.kind);
    let class = reference.text(&["spillway.class"]);
    prop_assert_eq!(text(span.class), if class == "a GET /x/{id}" { class } else { "" });
    let classless = span.class.is_none() && span.template.is_none();
    prop_assert_eq!(span.kind, if kind == Kind::Server && classless { Kind::Internal } else { kind });
    prop_assert_eq!(decoded.rejected.len(), usize::from(kind == Kind::Server && classless));
    prop_assert_eq!(text(span.source_cluster), reference.label("spillway.source.cluster"));
    prop_assert_eq!(text(span.source_service), reference.label("spillway.source.service"));
    if kind == Kind::Client {
        prop_assert_eq!(text(span.destination_cluster), reference.label("spillway.destination.cluster"));
        let service = reference.label("spillway.destination.service");
        prop_assert!(service.is_empty() || service == text(span.destination_service));
    }
    let counts = |keys: &[&str]| reference.whole(keys, i128::from(i64::MAX)).unwrap_or(0) as u64;
    let small = |keys: &[&str]| reference.whole(keys, i128::from(u32::MAX)).unwrap_or(0) as u32;
    prop_assert_eq!(span.in_flight, small(&["spillway.load.in_flight"]));
    prop_assert_eq!(span.class_in_flight, small(&["spillway.load.class.in_flight"]));
    prop_assert_eq!(span.arrival_rate, reference.rate("spillway.load.arrival_rate"));
    prop_assert_eq!(span.class_arrival_rate, reference.rate("spillway.load.class.arrival_rate"));
    let network = reference.whole(&["spillway.network.time_us"], 3_600_000_000);
    prop_assert_eq!(span.network_us.map(i128::from), network);
    prop_assert_eq!(span.resends, small(&["http.request.resend_count", "http.resend_count"]));
    let request =
        ["http.request.body.size", "http.request.size", "http.request_content_length", "request_size"];
    prop_assert_eq!(span.request_bytes, counts(&request));
    let response =
        ["http.response.body.size", "http.response.size", "http.response_content_length", "response_size"];
    prop_assert_eq!(span.response_bytes, counts(&response));
    prop_assert_eq!(span.ruleset_version, counts(&["spillway.ruleset.version"]));
    let count = if wire.trace_state.ends_with('8') { 2.0 } else { 1.0 };
    prop_assert_eq!(span.adjusted_count, if wire.trace_state.ends_with('c') { 4.0 } else { count });
    Ok(())
}

fn is_service(name: &str) -> bool {
    spillway_spans::classes::class_id::is_class_id(&format!("{name} GET /"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Numbers, texts, precedence of keys, identity and outcome agree with a map of the published
    /// types' attributes.
    #[test]
    fn every_field_agrees_with_the_published_types(wire in wire(), extra in attributes(6)) {
        check(&wire, &[identity(), extra].concat())?;
    }

    /// A payload that the published types accept is accepted here too, and has as many spans.
    #[test]
    fn bytes_that_are_a_request_are_one(
        spans in proptest::collection::vec(wire(), 0..4),
        at in any::<proptest::sample::Index>(), byte: u8,
    ) {
        let mut payload = export(spans, identity()).encode_to_vec();
        if !payload.is_empty() {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        agree(&payload)?;
    }

    /// Any bytes are either a request or an error.
    #[test]
    fn any_bytes_are_survived(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        agree(&payload)?;
    }
}

/// Decodes the bytes in both ways. The published types are stricter, because they also parse fields
/// that this decoder skips.
fn agree(payload: &[u8]) -> Result<(), TestCaseError> {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    let (ours, theirs) = (decode_bytes(payload), ExportTraceServiceRequest::decode(payload));
    let Ok(theirs) = theirs else { return Ok(()) };
    prop_assert!(ours.is_ok());
    let Ok(ours) = ours else { return Ok(()) };
    let scopes = theirs.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    let spans: usize = scopes.map(|scope| scope.spans.len()).sum();
    let demoted = |reason: &str| reason.starts_with("server span without");
    let refused: u64 =
        ours.rejected.iter().filter(|part| !demoted(&part.reason)).map(|part| part.spans).sum();
    prop_assert_eq!(spans as u64, ours.spans.len() as u64 + refused);
    for rejected in &ours.rejected {
        let again = ExportTraceServiceRequest::decode(rejected.request.as_slice());
        prop_assert!(again.is_ok());
    }
    Ok(())
}

/// Unusual but valid protobuf encodings decode to the same values: fields in any order, long
/// numbers, split messages and unknown fields.
#[test]
fn unusual_encodings_say_the_same() {
    use spillway_spans::decode::wire::put_bytes;
    let field = |number: u32, bytes: &[u8]| {
        let mut out = Vec::new();
        put_bytes(number, bytes, &mut out);
        out
    };
    let (key, text) = (field(1, b"spillway.class"), field(2, &field(1, b"a GET /x")));
    let backwards = field(9, &[text.clone(), key.clone()].concat());
    let unknown = field(9, &[key.clone(), vec![0xa8, 0x01, 0x07], text.clone()].concat());
    let twice = field(9, &[key.clone(), field(2, &field(1, b"no class")), text.clone()].concat());
    let long = [&[0x4a, 0x80 | (key.len() + text.len()) as u8, 0x00], key.as_slice(), &text].concat();
    let group = [field(9, &[key, text].concat()), vec![0xfb, 0x01, 0x08, 0x01, 0xfc, 0x01]].concat();
    for attribute in [backwards, unknown, twice, long, group] {
        let span = [server(vec![]).encode_to_vec(), attribute].concat();
        let whole = field(2, &field(2, &span));
        let resource =
            identity().iter().map(|pair| field(1, &field(1, &pair.encode_to_vec()))).collect::<Vec<_>>();
        let around = [whole.as_slice(), &resource[0], &resource[1]].concat();
        let decoded = decode_bytes(&field(1, &around)).unwrap();
        assert_eq!(decoded.text(decoded.span().class), "a GET /x");
        assert_eq!((decoded.text(decoded.span().cluster), decoded.span().kind), ("c1", Kind::Server));
    }
}
