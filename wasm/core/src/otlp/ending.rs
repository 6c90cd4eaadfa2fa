//! The fields of a Span message that are known when its request is over.

use std::borrow::Cow;

use spillway_contracts::*;

use super::attributes::*;
use super::wire::*;
use crate::Party;

const STATUS_ERROR: u64 = 2;

/// The facts that are known when a request is over.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Start plus the monotonic duration, in nanoseconds since the epoch. Never before the start.
    pub end_ns: u64,
    /// HTTP status. None when no response came (reset).
    pub status: Option<u16>,
    /// Body bytes received from the caller.
    pub request_bytes: Option<u64>,
    /// Body bytes received from the callee.
    pub response_bytes: Option<u64>,
    /// Version of the ruleset whose route was taken (outbound).
    pub ruleset_version: Option<u64>,
    /// Time that the caller waited minus the callee's own time, in microseconds (outbound).
    pub network_time_us: Option<u64>,
    /// The callee's own time, in microseconds.
    pub service_time_us: Option<u64>,
    /// gRPC status code.
    pub grpc_status: Option<u64>,
    /// Tries of this proxy before the last one.
    pub resends: Option<u64>,
    /// Names of Envoy's response flags, separated by commas.
    pub flags: Option<String>,
    /// Envoy's response code details.
    pub details: Option<String>,
    /// Why the request failed. None when it succeeded.
    pub error: Option<Cow<'static, str>>,
}

impl Ending {
    /// Appends the fields to the encoded span.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_fixed64(8, self.end_ns, out);
        for (key, value) in [
            (OTEL_ATTRIBUTE_HTTP_STATUS, self.status.map(u64::from)),
            (OTEL_ATTRIBUTE_REQUEST_SIZE, self.request_bytes),
            (OTEL_ATTRIBUTE_RESPONSE_SIZE, self.response_bytes),
            (SPAN_ATTRIBUTE_RULESET_VERSION, self.ruleset_version),
            (SPAN_ATTRIBUTE_NETWORK_TIME, self.network_time_us),
            (SPAN_ATTRIBUTE_SERVICE_TIME, self.service_time_us),
            (OTEL_ATTRIBUTE_RPC_STATUS, self.grpc_status),
        ] {
            if let Some(value) = value {
                put_int(ATTRIBUTE, key, value, out);
            }
        }
        for (key, value) in [
            (SPAN_ATTRIBUTE_RESPONSE_FLAGS, self.flags.as_deref()),
            (SPAN_ATTRIBUTE_RESPONSE_DETAILS, self.details.as_deref()),
            (OTEL_ATTRIBUTE_ERROR_TYPE, self.error.as_deref()),
        ] {
            if let Some(value) = value {
                put_text(key, value.as_bytes(), out);
            }
        }
        put_resends(self.resends, out);
        if self.error.is_some() {
            put_header(15, 2, out);
            put_varint(3, STATUS_ERROR, out);
        }
    }
}

/// Writes the destination. Each part is written once, when it becomes known.
pub fn put_destination(destination: Party<'_>, out: &mut Vec<u8>) {
    put_party(destination, SPAN_ATTRIBUTE_DESTINATION_CLUSTER, SPAN_ATTRIBUTE_DESTINATION_SERVICE, out);
}

/// Writes the HTTP version, such as `1.1`.
pub fn put_protocol(version: &[u8], out: &mut Vec<u8>) {
    put_text(OTEL_ATTRIBUTE_PROTOCOL_VERSION, version, out);
}
