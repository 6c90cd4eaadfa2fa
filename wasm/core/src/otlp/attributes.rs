//! Attributes that both halves of a span tell, and attributes of foreign bytes.

use spillway_contracts::OTEL_ATTRIBUTE_RESEND_COUNT;

use super::wire::{put_int, put_string};
use crate::Party;

/// Span.attributes.
pub const ATTRIBUTE: u32 = 9;
/// Longer paths and hosts are cut: a span's size has a bound.
const TEXT_MAX: usize = 1024;

/// Tries before this one; none is not told.
pub fn put_resends(resends: Option<u64>, out: &mut Vec<u8>) {
    if let Some(resends) = resends.filter(|resends| *resends > 0) {
        put_int(ATTRIBUTE, OTEL_ATTRIBUTE_RESEND_COUNT, resends, out);
    }
}

/// What is known of a cluster and a service.
pub fn put_party(party: Party<'_>, cluster: &str, service: &str, out: &mut Vec<u8>) {
    for (key, value) in [(cluster, party.cluster), (service, party.service)] {
        if let Some(value) = value {
            put_string(ATTRIBUTE, key, value.as_bytes(), out);
        }
    }
}

/// An attribute of foreign bytes: what is not UTF-8 is replaced, what is too long is cut.
pub fn put_text(key: &str, bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = bytes.get(..TEXT_MAX).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => put_string(ATTRIBUTE, key, text.as_bytes(), out),
        // The end of a cut text may be half a character: it goes, and nothing else changes.
        Err(error) if error.error_len().is_none() => {
            put_string(ATTRIBUTE, key, bytes.get(..error.valid_up_to()).unwrap_or_default(), out);
        }
        Err(_) => put_string(ATTRIBUTE, key, String::from_utf8_lossy(bytes).as_bytes(), out),
    }
}
