//! Attributes that both the arrival and the ending of a span write, and attributes with untrusted
//! bytes.

use spillway_contracts::OTEL_ATTRIBUTE_RESEND_COUNT;

use super::wire::{put_int, put_string};
use crate::Party;

/// Field number of Span.attributes.
pub const ATTRIBUTE: u32 = 9;
/// Longest text of an attribute, in bytes. Longer paths and hosts are cut, so the size of a span is
/// bounded.
const TEXT_MAX: usize = 1024;

/// Writes the number of tries before this one. Zero is not written.
pub fn put_resends(resends: Option<u64>, out: &mut Vec<u8>) {
    if let Some(resends) = resends.filter(|resends| *resends > 0) {
        put_int(ATTRIBUTE, OTEL_ATTRIBUTE_RESEND_COUNT, resends, out);
    }
}

/// Writes the known parts of a party, under the given attribute keys for cluster and service.
pub fn put_party(party: Party<'_>, cluster: &str, service: &str, out: &mut Vec<u8>) {
    for (key, value) in [(cluster, party.cluster), (service, party.service)] {
        if let Some(value) = value {
            put_string(ATTRIBUTE, key, value.as_bytes(), out);
        }
    }
}

/// Writes an attribute with untrusted bytes. Invalid UTF-8 is replaced, and text beyond the limit
/// is cut.
pub fn put_text(key: &str, bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = bytes.get(..TEXT_MAX).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => put_string(ATTRIBUTE, key, text.as_bytes(), out),
        // Cutting may leave an incomplete character at the end, which is removed.
        Err(error) if error.error_len().is_none() => {
            put_string(ATTRIBUTE, key, bytes.get(..error.valid_up_to()).unwrap_or_default(), out);
        }
        Err(_) => put_string(ATTRIBUTE, key, String::from_utf8_lossy(bytes).as_bytes(), out),
    }
}
