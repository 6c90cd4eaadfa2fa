//! The headers that the filter reads. Values are borrowed from the proxy's header map.

use spillway_contracts::*;

use crate::context::b3;

/// Prefix of the names of Spillway's own headers.
const OURS: &[u8] = b"x-spillway-";

/// The headers of a request that carry trace context.
#[derive(Clone, Debug, Default)]
pub struct TraceHeaders<'a> {
    /// The last `traceparent` header.
    pub traceparent: Option<&'a [u8]>,
    /// There was more than one `traceparent`, which W3C calls invalid.
    pub several_traceparents: bool,
    /// The first `tracestate` line. All `tracestate` lines together form one list.
    pub tracestate: Option<&'a [u8]>,
    /// The `tracestate` lines after the first. Almost always empty.
    pub more_tracestate: Vec<&'a [u8]>,
    /// `b3`.
    pub b3: Option<&'a [u8]>,
    /// `x-b3-traceid`.
    pub b3_trace: Option<&'a [u8]>,
    /// `x-b3-spanid`.
    pub b3_span: Option<&'a [u8]>,
    /// `x-b3-sampled`.
    pub b3_sampled: Option<&'a [u8]>,
    /// `x-b3-flags`.
    pub b3_flags: Option<&'a [u8]>,
}

/// The headers of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestHeaders<'a> {
    /// `:method`.
    pub method: Option<&'a [u8]>,
    /// `:path`, including the query.
    pub path: Option<&'a [u8]>,
    /// `:authority`.
    pub authority: Option<&'a [u8]>,
    /// `:scheme`.
    pub scheme: Option<&'a [u8]>,
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-length`.
    pub content_length: Option<&'a [u8]>,
    /// `x-envoy-attempt-count`: 1 for the first try that the caller's proxy made.
    pub attempt_count: Option<&'a [u8]>,
    /// Cluster that the caller's proxy names.
    pub source_cluster: Option<&'a [u8]>,
    /// Service that the caller's proxy names.
    pub source_service: Option<&'a [u8]>,
    /// At least one header has Spillway's prefix.
    pub ours: bool,
    /// The trace headers.
    pub trace: TraceHeaders<'a>,
}

impl<'a> RequestHeaders<'a> {
    /// Reads all headers in one pass.
    pub fn read(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.take(name, value);
        }
        headers
    }

    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        self.ours |= name.starts_with(OURS);
        let slot = match name {
            b":method" => &mut self.method,
            b":path" => &mut self.path,
            b":authority" => &mut self.authority,
            b":scheme" => &mut self.scheme,
            b"content-type" => &mut self.content_type,
            b"content-length" => &mut self.content_length,
            b"x-envoy-attempt-count" => &mut self.attempt_count,
            _ if name == HTTP_HEADER_SOURCE_CLUSTER.as_bytes() => &mut self.source_cluster,
            _ if name == HTTP_HEADER_SOURCE_SERVICE.as_bytes() => &mut self.source_service,
            _ => return self.trace.take(name, value),
        };
        *slot = Some(value);
    }
}

impl<'a> TraceHeaders<'a> {
    /// Whether any B3 header is present.
    pub fn any_b3(&self) -> bool {
        [self.b3, self.b3_trace, self.b3_span, self.b3_sampled, self.b3_flags].iter().any(Option::is_some)
    }

    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        if name == HTTP_HEADER_TRACEPARENT.as_bytes() {
            self.several_traceparents |= self.traceparent.is_some();
            self.traceparent = Some(value);
        } else if name == HTTP_HEADER_TRACESTATE.as_bytes() {
            match self.tracestate {
                None => self.tracestate = Some(value),
                Some(_) => self.more_tracestate.push(value),
            }
        } else if name.starts_with(b"x-b3-") || name == b3::SINGLE.as_bytes() {
            self.take_b3(name, value);
        }
    }

    fn take_b3(&mut self, name: &[u8], value: &'a [u8]) {
        for (known, slot) in [
            (b3::SINGLE, &mut self.b3),
            (b3::TRACE_ID, &mut self.b3_trace),
            (b3::SPAN_ID, &mut self.b3_span),
            (b3::SAMPLED, &mut self.b3_sampled),
            (b3::FLAGS, &mut self.b3_flags),
        ] {
            if name == known.as_bytes() {
                *slot = Some(value);
            }
        }
    }
}

/// The headers of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseHeaders<'a> {
    /// `:status`.
    pub status: Option<&'a [u8]>,
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-length`.
    pub content_length: Option<&'a [u8]>,
    /// The time that the callee measured for itself, in microseconds.
    pub service_time: Option<&'a [u8]>,
    /// The callee's cluster.
    pub cluster: Option<&'a [u8]>,
    /// `grpc-status`, which is among the headers when a response consists of trailers only.
    pub grpc_status: Option<&'a [u8]>,
}

impl<'a> ResponseHeaders<'a> {
    /// Reads all headers in one pass.
    pub fn read(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            let slot = match name {
                b":status" => &mut headers.status,
                b"content-type" => &mut headers.content_type,
                b"content-length" => &mut headers.content_length,
                b"grpc-status" => &mut headers.grpc_status,
                _ if name == HTTP_HEADER_SERVICE_TIME.as_bytes() => &mut headers.service_time,
                _ if name == HTTP_HEADER_CLUSTER.as_bytes() => &mut headers.cluster,
                _ => continue,
            };
            *slot = Some(value);
        }
        headers
    }
}

/// Parses a header value as a decimal number: digits only, no sign, no spaces.
pub fn decimal(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
