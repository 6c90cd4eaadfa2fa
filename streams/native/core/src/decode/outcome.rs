//! Determines how a request ended.

use crate::decode::attributes::{Attributes, Value};
use crate::decode::keys::*;

/// Statuses that the conventions call a server's error: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED,
/// INTERNAL, UNAVAILABLE, DATA_LOSS. Statuses such as NOT_FOUND are answers, like HTTP's 4xx.
const RPC_FAULTS: [(u64, &str); 6] = [
    (2, "UNKNOWN"),
    (4, "DEADLINE_EXCEEDED"),
    (12, "UNIMPLEMENTED"),
    (13, "INTERNAL"),
    (14, "UNAVAILABLE"),
    (15, "DATA_LOSS"),
];
/// Envoy's response flags of requests that no upstream answered.
const NO_ANSWER: [&[u8]; 14] =
    [b"UH", b"UF", b"UO", b"NR", b"URX", b"NC", b"UT", b"LR", b"UR", b"UC", b"UPE", b"DT", b"NFCF", b"UMSDR"];

/// Returns the HTTP status (0 when there is none) and whether the request failed.
///
/// A request failed if it has an error status, HTTP 5xx, no response to an HTTP request, or a gRPC
/// status that is the server's fault. Envoy's flags count only when there is no HTTP status.
pub fn outcome(attributes: &Attributes<'_, '_>, is_error: bool) -> (u16, bool) {
    let has_status = attributes.get(STATUS).is_some();
    let status = attributes.whole(STATUS, u64::from(u16::MAX));
    let no_response = has_status && status == Some(0)
        || !has_status && flags_tell_no_answer(attributes.text(RESPONSE_FLAGS));
    let status = status.unwrap_or(0);
    let failed = is_error || no_response || status >= 500 || rpc_fault(attributes) || has_error(attributes);
    (status as u16, failed)
}

fn rpc_fault(attributes: &Attributes<'_, '_>) -> bool {
    match attributes.whole(RPC_STATUS, u64::MAX) {
        Some(number) => RPC_FAULTS.iter().any(|(fault, _)| *fault == number),
        None => {
            let name = attributes.text(RPC_STATUS);
            !name.is_empty() && RPC_FAULTS.iter().any(|(_, fault)| fault.as_bytes() == name)
        }
    }
}

fn has_error(attributes: &Attributes<'_, '_>) -> bool {
    match attributes.get(ERROR) {
        Some(Value::Bool(error)) => error,
        Some(Value::Text(text)) => text == b"true",
        Some(Value::Int(number)) => number == 1,
        Some(Value::Double(number)) => number == 1.0,
        None => false,
    }
}

fn flags_tell_no_answer(flags: &[u8]) -> bool {
    !flags.is_empty() && flags.split(|byte| *byte == b',').any(|flag| NO_ANSWER.contains(&flag))
}
