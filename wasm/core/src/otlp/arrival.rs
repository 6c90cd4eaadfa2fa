//! The fields of a Span message that are known when its request arrives.

use spillway_contracts::*;

use super::attributes::*;
use super::wire::*;
use crate::context::trace::TraceContext;
use crate::metering::class::Class;
use crate::metering::load::{Load, Loads};
use crate::request::grpc;
use crate::{Direction, Party};

const KIND_SERVER: u64 = 2;
const KIND_CLIENT: u64 = 3;
/// Methods of the HTTP conventions. All others are recorded as `_OTHER`, so the number of span
/// names stays small.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY"];
const OTHER_METHOD: &str = "_OTHER";

/// The facts that are known when a request arrives.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The side of the proxy, which decides the span's kind.
    pub direction: Direction,
    /// The ids of the trace and of the span.
    pub trace: &'a TraceContext<'a>,
    /// Time of arrival by the wall clock, in nanoseconds since the epoch.
    pub start_ns: u64,
    /// `:method`, as received.
    pub method: &'a [u8],
    /// `:path`. The query is not recorded.
    pub path: &'a [u8],
    /// `:scheme`.
    pub scheme: Option<&'a [u8]>,
    /// `:authority`: the host, possibly with a port.
    pub authority: Option<&'a [u8]>,
    /// The service and method of a gRPC request.
    pub rpc: Option<grpc::Method<'a>>,
    /// The class that the route's name carries.
    pub class: Option<Class<'a>>,
    /// The load that the request met (inbound).
    pub loads: Option<Loads>,
    /// The caller.
    pub source: Party<'a>,
    /// Tries before this one, as counted by the caller's proxy.
    pub resends: Option<u64>,
}

impl Arrival<'_> {
    /// Appends the fields to the encoded span.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_bytes(1, &self.trace.trace_id, out);
        put_bytes(2, &self.trace.span_id, out);
        if let Some(state) = &self.trace.tracestate {
            put_bytes(3, state.as_bytes(), out);
        }
        if let Some(parent) = &self.trace.parent {
            put_bytes(4, parent, out);
        }
        self.put_name(out);
        put_varint(6, if self.direction == Direction::Inbound { KIND_SERVER } else { KIND_CLIENT }, out);
        put_fixed64(7, self.start_ns, out);
        put_fixed32(16, u32::from(self.trace.flags()), out);
        put_string(ATTRIBUTE, SPAN_ATTRIBUTE_DIRECTION, self.direction.as_str().as_bytes(), out);
        self.put_http(out);
        self.put_class(out);
        put_party(self.source, SPAN_ATTRIBUTE_SOURCE_CLUSTER, SPAN_ATTRIBUTE_SOURCE_SERVICE, out);
        put_resends(self.resends, out);
    }

    /// Writes the span's name: `service/method` for gRPC, otherwise `METHOD template`, or the
    /// method alone without a template.
    fn put_name(&self, out: &mut Vec<u8>) {
        if let Some(rpc) = self.rpc {
            return put_bytes(5, rpc.full.as_bytes(), out);
        }
        let method = match known_method(self.method) {
            OTHER_METHOD => "HTTP",
            method => method,
        };
        let template = self.class.and_then(|class| class.template).unwrap_or_default();
        let space = usize::from(!template.is_empty());
        put_header(5, method.len() + space + template.len(), out);
        out.extend_from_slice(method.as_bytes());
        out.extend(std::iter::repeat_n(b' ', space));
        out.extend_from_slice(template.as_bytes());
    }

    fn put_http(&self, out: &mut Vec<u8>) {
        let method = known_method(self.method);
        put_string(ATTRIBUTE, OTEL_ATTRIBUTE_HTTP_METHOD, method.as_bytes(), out);
        if method == OTHER_METHOD {
            put_text(OTEL_ATTRIBUTE_HTTP_METHOD_ORIGINAL, self.method, out);
        }
        put_text(OTEL_ATTRIBUTE_URL_PATH, without_query(self.path), out);
        if let Some(scheme) = self.scheme {
            put_text(OTEL_ATTRIBUTE_URL_SCHEME, scheme, out);
        }
        if let Some(authority) = self.authority {
            let (host, port) = host_and_port(authority);
            put_text(OTEL_ATTRIBUTE_SERVER_ADDRESS, host, out);
            if let Some(port) = port {
                put_int(ATTRIBUTE, OTEL_ATTRIBUTE_SERVER_PORT, u64::from(port), out);
            }
        }
        if let Some(rpc) = self.rpc {
            put_string(ATTRIBUTE, OTEL_ATTRIBUTE_RPC_SYSTEM, grpc::SYSTEM.as_bytes(), out);
            put_string(ATTRIBUTE, OTEL_ATTRIBUTE_RPC_SERVICE, rpc.service.as_bytes(), out);
            put_string(ATTRIBUTE, OTEL_ATTRIBUTE_RPC_METHOD, rpc.method.as_bytes(), out);
        }
    }

    fn put_class(&self, out: &mut Vec<u8>) {
        if let Some(class) = self.class {
            put_string(ATTRIBUTE, SPAN_ATTRIBUTE_CLASS, class.id.as_bytes(), out);
            if let Some(template) = class.template {
                let key = match self.direction {
                    Direction::Inbound => OTEL_ATTRIBUTE_HTTP_ROUTE,
                    Direction::Outbound => OTEL_ATTRIBUTE_URL_TEMPLATE,
                };
                put_string(ATTRIBUTE, key, template.as_bytes(), out);
            }
        }
        let Some(loads) = self.loads else { return };
        put_load(loads.service, SPAN_ATTRIBUTE_IN_FLIGHT, SPAN_ATTRIBUTE_ARRIVAL_RATE, out);
        if let Some(load) = loads.class {
            put_load(load, SPAN_ATTRIBUTE_CLASS_IN_FLIGHT, SPAN_ATTRIBUTE_CLASS_ARRIVAL_RATE, out);
        }
    }
}

fn put_load(load: Load, in_flight: &str, rate: &str, out: &mut Vec<u8>) {
    put_int(ATTRIBUTE, in_flight, load.in_flight, out);
    if let Some(arrival_rate) = load.arrival_rate {
        put_double(ATTRIBUTE, rate, arrival_rate, out);
    }
}

fn known_method(method: &[u8]) -> &'static str {
    METHODS.iter().find(|known| known.as_bytes() == method).copied().unwrap_or(OTHER_METHOD)
}

fn without_query(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    path.get(..end).unwrap_or(path)
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port` into host and port.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let Some((host, port)) = colon.and_then(|at| authority.split_at_checked(at)) else {
        return (authority, None);
    };
    let port = port.split_first().and_then(|(_, digits)| crate::request::headers::decimal(digits));
    match port.and_then(|port| u16::try_from(port).ok()) {
        Some(port) => (host, Some(port)),
        None => (authority, None),
    }
}
