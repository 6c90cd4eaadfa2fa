//! The attribute keys that streams/ reads, grouped by meaning.

use spillway_contracts::*;

/// Keys with one meaning, in order of precedence.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub first: usize,
    pub mask: u64,
}

macro_rules! groups {
    ($($(#[$doc:meta])* $group:ident: [$($key:expr),+ $(,)?]),+ $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum At { $($group),+ }
        const LENGTHS: &[usize] = &[$([$($key),+].len()),+];
        /// Every key that is read. The keys of a group are adjacent, so a set of found keys is one
        /// word of bits.
        pub const KEYS: &[&str] = &[$($($key),+),+];
        $($(#[$doc])* pub const $group: Group = group(At::$group as usize);)+
    };
}

// In each group, our keys come first, then OpenTelemetry's stable keys, its old ones, and those of
// Envoy's and Jaeger's tracers.
groups! {
    CLASS: [SPAN_ATTRIBUTE_CLASS],
    CLUSTER: [SPAN_ATTRIBUTE_CLUSTER, "k8s.cluster.name", "istio.cluster_id"],
    /// Only the resource's value is used. A span's own value would be hearsay.
    SERVICE: [SPAN_ATTRIBUTE_SERVICE],
    CANONICAL_SERVICE: ["istio.canonical_service"],
    DIRECTION: [SPAN_ATTRIBUTE_DIRECTION, "span.kind"],
    IN_FLIGHT: [SPAN_ATTRIBUTE_IN_FLIGHT],
    ARRIVAL_RATE: [SPAN_ATTRIBUTE_ARRIVAL_RATE],
    CLASS_IN_FLIGHT: [SPAN_ATTRIBUTE_CLASS_IN_FLIGHT],
    CLASS_ARRIVAL_RATE: [SPAN_ATTRIBUTE_CLASS_ARRIVAL_RATE],
    SOURCE_CLUSTER: [SPAN_ATTRIBUTE_SOURCE_CLUSTER],
    SOURCE_SERVICE: [SPAN_ATTRIBUTE_SOURCE_SERVICE],
    DESTINATION_CLUSTER: [SPAN_ATTRIBUTE_DESTINATION_CLUSTER],
    DESTINATION_SERVICE: [SPAN_ATTRIBUTE_DESTINATION_SERVICE],
    NETWORK_TIME: [SPAN_ATTRIBUTE_NETWORK_TIME],
    RULESET_VERSION: [SPAN_ATTRIBUTE_RULESET_VERSION],
    METHOD: [OTEL_ATTRIBUTE_HTTP_METHOD, "http.method"],
    METHOD_ORIGINAL: [OTEL_ATTRIBUTE_HTTP_METHOD_ORIGINAL],
    STATUS: [OTEL_ATTRIBUTE_HTTP_STATUS, "http.status_code"],
    ROUTE: [OTEL_ATTRIBUTE_HTTP_ROUTE, OTEL_ATTRIBUTE_URL_TEMPLATE],
    PATH: [OTEL_ATTRIBUTE_URL_PATH, "http.target", "url.full", "http.url"],
    RPC_STATUS: [OTEL_ATTRIBUTE_RPC_STATUS, "rpc.response.status_code", "grpc.status_code"],
    RPC_SYSTEM: [OTEL_ATTRIBUTE_RPC_SYSTEM, "rpc.system.name"],
    RPC_SERVICE: [OTEL_ATTRIBUTE_RPC_SERVICE],
    RPC_METHOD: [OTEL_ATTRIBUTE_RPC_METHOD],
    COMPONENT: ["component"],
    ERROR: ["error"],
    /// `http.request.size` is the size on the wire, including headers.
    REQUEST_SIZE: [OTEL_ATTRIBUTE_REQUEST_SIZE, "http.request.size", "http.request_content_length", "request_size"],
    RESPONSE_SIZE: [OTEL_ATTRIBUTE_RESPONSE_SIZE, "http.response.size", "http.response_content_length", "response_size"],
    RESENDS: [OTEL_ATTRIBUTE_RESEND_COUNT, "http.resend_count"],
    PEER: ["peer.service", OTEL_ATTRIBUTE_SERVER_ADDRESS, "net.peer.name"],
    UPSTREAM: ["upstream_cluster", "upstream_cluster.name"],
    RESPONSE_FLAGS: ["response_flags"],
}

#[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn group(at: usize) -> Group {
    let (mut first, mut i) = (0, 0);
    while i < at {
        first += LENGTHS[i];
        i += 1;
    }
    Group { first, mask: (1 << LENGTHS[at]) - 1 }
}

/// The keys of `PATH` that hold a whole URL.
pub const URL: Group = Group { first: PATH.first + 2, mask: 0b11 };

const TABLE_BITS: u32 = 8;
const FREE: u8 = u8::MAX;
/// Hash table with open addressing and linear probing: the number of a key by its hash.
const TABLE: [u8; 1 << TABLE_BITS] = table();

const fn hash(key: &[u8]) -> u8 {
    let tail = match key.last_chunk::<8>() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => short(key),
    };
    ((tail ^ (key.len() as u64) << 50).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as u8
}

const fn short(key: &[u8]) -> u64 {
    let (mut word, mut rest) = (0, key);
    while let [byte, tail @ ..] = rest {
        word = word << 8 | *byte as u64;
        rest = tail;
    }
    word
}

#[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn table() -> [u8; 1 << TABLE_BITS] {
    let mut table = [FREE; 1 << TABLE_BITS];
    let mut number = 0;
    while number < KEYS.len() {
        let mut at = hash(KEYS[number].as_bytes());
        while table[at as usize] != FREE {
            at = at.wrapping_add(1);
        }
        table[at as usize] = number as u8;
        number += 1;
    }
    table
}

/// Returns the number of a key. None when the key is not read.
#[inline]
pub fn find(key: &[u8]) -> Option<usize> {
    let mut at = hash(key);
    loop {
        let number = TABLE.get(usize::from(at)).copied().filter(|number| *number != FREE)?;
        let known = KEYS.get(usize::from(number))?;
        if known.as_bytes() == key {
            return Some(usize::from(number));
        }
        at = at.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key has its own number within one word of bits, and is found by it. Other keys are not
    /// found.
    #[test]
    fn every_key_is_found_and_no_other() {
        assert!(KEYS.len() <= 64);
        for (number, key) in KEYS.iter().enumerate() {
            assert_eq!(find(key.as_bytes()), Some(number), "{key}");
            for cut in 0..key.len() {
                let same = KEYS.iter().position(|known| *known == &key[..cut]);
                assert_eq!(find(&key.as_bytes()[..cut]), same, "{key} cut at {cut}");
            }
        }
        assert_eq!(find(b""), None);
        assert_eq!(find(&[b'x'; 1 << 20]), None);
    }

    /// A group has exactly the keys that are listed for it, in the same order.
    #[test]
    fn groups_hold_their_own_names() {
        let of = |group: Group| &KEYS[group.first..group.first + group.mask.count_ones() as usize];
        assert_eq!(of(CLASS), [SPAN_ATTRIBUTE_CLASS]);
        assert_eq!(of(URL), ["url.full", "http.url"]);
        assert_eq!(of(METHOD), [OTEL_ATTRIBUTE_HTTP_METHOD, "http.method"]);
        assert_eq!(of(RESPONSE_FLAGS), ["response_flags"]);
    }

    /// Looking up a key seldom needs a second probe.
    #[test]
    fn the_table_has_few_collisions() {
        let moved = KEYS
            .iter()
            .enumerate()
            .filter(|(number, key)| TABLE[usize::from(hash(key.as_bytes()))] != *number as u8);
        assert!(moved.count() <= 8);
    }
}
