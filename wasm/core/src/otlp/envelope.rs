//! The export call: builds the request around encoded spans or metrics, and parses its answer.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use spillway_contracts::{OTEL_ATTRIBUTE_INSTANCE, SPAN_ATTRIBUTE_CLUSTER, SPAN_ATTRIBUTE_SERVICE};

use super::wire::{field_len, put_bytes, put_header, put_string};
use crate::config::Config;

/// gRPC service of the export call.
pub const EXPORT_SERVICE: &str = "opentelemetry.proto.collector.trace.v1.TraceService";
/// gRPC method of the export call.
pub const EXPORT_METHOD: &str = "Export";

/// Instrumentation scope of the spans.
pub const SPANS_SCOPE: &str = "spillway-filter";

/// The parts that every export of a proxy shares. ExportTraceServiceRequest and
/// ExportMetricsServiceRequest have the same shape down to their scope.
#[derive(Clone, Debug)]
pub struct Envelope {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Envelope {
    /// Encodes the resource (service, cluster and instance of the proxy) and the scope.
    pub fn new(config: &Config, instance: &str, scope_name: &str) -> Self {
        let (mut content, mut resource, mut scope) = (Vec::new(), Vec::new(), Vec::new());
        put_string(1, SPAN_ATTRIBUTE_SERVICE, config.service.as_bytes(), &mut content);
        put_string(1, SPAN_ATTRIBUTE_CLUSTER, config.cluster.as_bytes(), &mut content);
        put_string(1, OTEL_ATTRIBUTE_INSTANCE, instance.as_bytes(), &mut content);
        put_bytes(1, &content, &mut resource);
        content.clear();
        put_bytes(1, scope_name.as_bytes(), &mut content);
        put_bytes(2, env!("CARGO_PKG_VERSION").as_bytes(), &mut content);
        put_bytes(1, &content, &mut scope);
        Self { resource, scope }
    }

    /// Builds the request around spans that [`put_span`] appended, or around metrics.
    pub fn wrap(&self, spans: &[u8]) -> Vec<u8> {
        let scope_spans = self.scope.len() + spans.len();
        let resource_spans = self.resource.len() + field_len(scope_spans);
        let mut out = Vec::with_capacity(field_len(resource_spans));
        put_header(1, resource_spans, &mut out);
        out.extend_from_slice(&self.resource);
        put_header(2, scope_spans, &mut out);
        out.extend_from_slice(&self.scope);
        out.extend_from_slice(spans);
        out
    }
}

/// Appends one Span message as a field of ScopeSpans (`spans = 2`).
pub fn put_span(span: &[u8], out: &mut Vec<u8>) {
    put_bytes(2, span, out);
}

/// Returns how many spans the collector rejected, from an ExportTraceServiceResponse (field
/// `partial_success = 1`, within it `rejected_spans = 1`).
///
/// A response that cannot be parsed rejects nothing.
pub fn rejected_spans(response: &[u8]) -> u64 {
    let partial = find_field(response, 1, WireType::LengthDelimited, |buf| {
        let len = usize::try_from(decode_varint(buf)?).unwrap_or(usize::MAX);
        Ok(buf.split_at_checked(len).map_or(*buf, |(inside, _)| inside))
    });
    let rejected = partial.and_then(|partial| find_field(partial, 1, WireType::Varint, decode_varint));
    // The field is an int64. A negative number counts as zero.
    rejected.filter(|rejected| i64::try_from(*rejected).is_ok()).unwrap_or(0)
}

/// Finds the first field with the given tag and wire type, and parses it with `read`.
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
