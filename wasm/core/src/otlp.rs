//! OTLP trace export, encoded straight from borrowed facts into bytes: a span becomes bytes when its
//! request ends, a batch is a concatenation. No message types in between, no copy of a name.
//!
//! Field numbers: opentelemetry-proto v1, `trace.proto`, `common.proto`, `resource.proto`. The tests
//! decode with the published message types.

use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint,
    skip_field,
};
use spillway_contracts::*;

use crate::config::Config;
use crate::span::Span;
use crate::{Direction, Party};

/// gRPC service of the export call.
pub const EXPORT_SERVICE: &str = "opentelemetry.proto.collector.trace.v1.TraceService";
/// gRPC method of the export call.
pub const EXPORT_METHOD: &str = "Export";

const SCOPE: &str = "spillway-filter";
const KIND_SERVER: u64 = 2;
const KIND_CLIENT: u64 = 3;
const STATUS_ERROR: u64 = 2;
const FLAG_SAMPLED: u32 = 1;
/// Longer paths are cut: a span's size has a bound.
const PATH_MAX: usize = 1024;

/// One span as a field of ScopeSpans (`spans = 2`), ready to be concatenated.
pub fn encode_span(span: &Span<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(768);
    put_bytes(1, &span.trace.trace_id, &mut body);
    put_bytes(2, &span.trace.span_id, &mut body);
    if let Some(state) = &span.trace.tracestate {
        put_bytes(3, state.as_bytes(), &mut body);
    }
    if let Some(parent) = &span.trace.parent {
        put_bytes(4, parent, &mut body);
    }
    put_name(span, &mut body);
    let kind = match span.direction {
        Direction::Inbound => KIND_SERVER,
        Direction::Outbound => KIND_CLIENT,
    };
    put_varint(6, kind, &mut body);
    put_fixed64(7, span.start_ns, &mut body);
    put_fixed64(8, span.end_ns, &mut body);
    put_http_attributes(span, &mut body);
    put_spillway_attributes(span, &mut body);
    if span.failed() {
        put_nested(15, &mut body, |status| put_varint(3, STATUS_ERROR, status));
    }
    encode_key(16, WireType::ThirtyTwoBit, &mut body);
    body.extend_from_slice(&FLAG_SAMPLED.to_le_bytes());
    let mut out = Vec::with_capacity(body.len() + 8);
    put_bytes(2, &body, &mut out);
    out
}

/// The parts of an ExportTraceServiceRequest that are the same for every batch of a proxy.
#[derive(Clone, Debug)]
pub struct Envelope {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Envelope {
    /// Resource (service and cluster of the proxy) and scope.
    pub fn new(config: &Config) -> Self {
        let mut resource = Vec::new();
        put_nested(1, &mut resource, |r| {
            put_string_attribute(1, SPAN_ATTRIBUTE_SERVICE, &config.service, r);
            put_string_attribute(1, SPAN_ATTRIBUTE_CLUSTER, &config.cluster, r);
        });
        let mut scope = Vec::new();
        put_nested(1, &mut scope, |s| {
            put_bytes(1, SCOPE.as_bytes(), s);
            put_bytes(2, env!("CARGO_PKG_VERSION").as_bytes(), s);
        });
        Self { resource, scope }
    }

    /// An ExportTraceServiceRequest around spans of [`encode_span`].
    pub fn wrap(&self, spans: &[Vec<u8>]) -> Vec<u8> {
        let scope_spans = self.scope.len() + spans.iter().map(Vec::len).sum::<usize>();
        let resource_spans = self.resource.len() + field_len(scope_spans);
        let mut out = Vec::with_capacity(field_len(resource_spans));
        put_header(1, resource_spans, &mut out);
        out.extend_from_slice(&self.resource);
        put_header(2, scope_spans, &mut out);
        out.extend_from_slice(&self.scope);
        for span in spans {
            out.extend_from_slice(span);
        }
        out
    }
}

/// How many spans the collector says it rejected, of an ExportTraceServiceResponse
/// (`partial_success = 1`, therein `rejected_spans = 1`). What is not understood rejects nothing.
pub fn rejected_spans(response: &[u8]) -> u64 {
    let partial = find_field(response, 1, WireType::LengthDelimited, |buf| {
        let len = usize::try_from(decode_varint(buf)?).unwrap_or(usize::MAX);
        Ok(buf.split_at_checked(len).map_or(*buf, |(inside, _)| inside))
    });
    partial.and_then(|partial| find_field(partial, 1, WireType::Varint, decode_varint)).unwrap_or(0)
}

/// The first field with this tag and type, as `read` reads it.
fn find_field<'a, T>(
    mut message: &'a [u8],
    wanted: u32,
    kind: WireType,
    read: impl FnOnce(&mut &'a [u8]) -> Result<T, DecodeError>,
) -> Option<T> {
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message).ok()?;
        if tag == wanted && wire_type == kind {
            return read(&mut message).ok();
        }
        skip_field(wire_type, tag, &mut message, DecodeContext::default()).ok()?;
    }
    None
}

fn put_name(span: &Span<'_>, out: &mut Vec<u8>) {
    let (method, template) = span.name();
    match template {
        None => put_bytes(5, method.as_bytes(), out),
        Some(template) => put_nested(5, out, |name| {
            name.extend_from_slice(method.as_bytes());
            name.push(b' ');
            name.extend_from_slice(template.as_bytes());
        }),
    }
}

fn put_http_attributes(span: &Span<'_>, out: &mut Vec<u8>) {
    put_string_attribute(9, OTEL_ATTRIBUTE_HTTP_METHOD, span.known_method(), out);
    put_string_attribute(9, OTEL_ATTRIBUTE_URL_PATH, cut(span.path), out);
    if let Some(address) = span.server_address {
        put_string_attribute(9, OTEL_ATTRIBUTE_SERVER_ADDRESS, address, out);
    }
    if let Some(status) = span.status {
        put_int_attribute(OTEL_ATTRIBUTE_HTTP_STATUS, u64::from(status), out);
    }
    if let Some(template) = span.class.and_then(|class| class.template) {
        put_string_attribute(9, OTEL_ATTRIBUTE_HTTP_ROUTE, template, out);
    }
    put_int_attribute(OTEL_ATTRIBUTE_REQUEST_SIZE, span.request_bytes, out);
    put_int_attribute(OTEL_ATTRIBUTE_RESPONSE_SIZE, span.response_bytes, out);
}

fn put_spillway_attributes(span: &Span<'_>, out: &mut Vec<u8>) {
    put_string_attribute(9, SPAN_ATTRIBUTE_DIRECTION, span.direction.as_str(), out);
    if let Some(class) = span.class {
        put_string_attribute(9, SPAN_ATTRIBUTE_CLASS, class.id, out);
    }
    if let Some(load) = span.load {
        put_int_attribute(SPAN_ATTRIBUTE_IN_FLIGHT, load.in_flight, out);
        put_attribute(9, SPAN_ATTRIBUTE_ARRIVAL_RATE, out, |value| {
            put_fixed64(4, load.arrival_rate.to_bits(), value);
        });
    }
    put_party(span.source, SPAN_ATTRIBUTE_SOURCE_CLUSTER, SPAN_ATTRIBUTE_SOURCE_SERVICE, out);
    put_party(span.destination, SPAN_ATTRIBUTE_DESTINATION_CLUSTER, SPAN_ATTRIBUTE_DESTINATION_SERVICE, out);
    let numbers = [
        (SPAN_ATTRIBUTE_RULESET_VERSION, span.ruleset_version),
        (SPAN_ATTRIBUTE_NETWORK_TIME, span.network_time_us),
        (SPAN_ATTRIBUTE_SERVICE_TIME, span.service_time_us),
    ];
    for (key, value) in numbers {
        if let Some(value) = value {
            put_int_attribute(key, value, out);
        }
    }
}

fn put_party(party: Party<'_>, cluster: &str, service: &str, out: &mut Vec<u8>) {
    for (key, value) in [(cluster, party.cluster), (service, party.service)] {
        if let Some(value) = value {
            put_string_attribute(9, key, value, out);
        }
    }
}

fn put_string_attribute(tag: u32, key: &str, text: &str, out: &mut Vec<u8>) {
    put_attribute(tag, key, out, |value| put_bytes(1, text.as_bytes(), value));
}

fn put_int_attribute(key: &str, number: u64, out: &mut Vec<u8>) {
    // AnyValue.int_value is int64.
    put_attribute(9, key, out, |value| put_varint(3, number.min(i64::MAX as u64), value));
}

/// KeyValue {key = 1, value = 2}.
fn put_attribute(tag: u32, key: &str, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    put_nested(tag, out, |pair| {
        put_bytes(1, key.as_bytes(), pair);
        put_nested(2, pair, value);
    });
}

/// A length-delimited field whose content `fill` appends. The length is written after the content is
/// known: one byte is kept free for it, and the content moves up in the rare case that it needs more.
fn put_nested(tag: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    encode_key(tag, WireType::LengthDelimited, out);
    let at = out.len();
    out.push(0);
    fill(out);
    let len = out.len().saturating_sub(at + 1);
    let mut prefix = Vec::new();
    match (u8::try_from(len), out.get_mut(at)) {
        (Ok(short), Some(slot)) if short < 0x80 => *slot = short,
        _ => {
            encode_varint(len as u64, &mut prefix);
            out.splice(at..=at, prefix);
        }
    }
}

fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_header(tag, bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn put_header(tag: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn put_varint(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value, out);
}

fn put_fixed64(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::SixtyFourBit, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Size of a length-delimited field with a tag below 16.
fn field_len(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}

fn cut(path: &str) -> &str {
    path.get(..path.floor_char_boundary(PATH_MAX)).unwrap_or(path)
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;
