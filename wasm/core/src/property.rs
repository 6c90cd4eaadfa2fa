//! What the proxy knows about a request, and how it hands it out.

use spillway_contracts::XDS_METADATA_NAMESPACE;

/// A property of the request at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// Text: the class id, or the catch-all's name.
    RouteName,
    /// Text: Envoy cluster, `service|cluster` for those that the relay serves.
    ClusterName,
    /// From the route's metadata, see [`ruleset_version`].
    RulesetVersion,
    /// Number: what the request's content-length says, without one the body bytes received.
    RequestSize,
    /// Number: body bytes received from the caller, and the bytes of the headers as they are now.
    RequestTotalSize,
    /// Number: body bytes sent to the caller.
    ResponseSize,
    /// Text: `HTTP/1.1`, `HTTP/2`.
    Protocol,
    /// Text: `grpc-status` of the trailers. Envoy's `response.grpc_status` makes one up from the HTTP status
    /// where none was sent.
    GrpcStatus,
    /// Number: a bit per flag, see [`crate::flags`].
    ResponseFlags,
    /// Text: why the proxy answered as it did.
    ResponseDetails,
    /// Number: tries, the first included.
    AttemptCount,
    /// Text: the first URI of the caller's certificate.
    PeerUri,
}

impl Property {
    /// The parts of its path. Source: Envoy, "Attributes".
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Self::RouteName => &["xds", "route_name"],
            Self::ClusterName => &["xds", "cluster_name"],
            Self::RulesetVersion => {
                &["xds", "route_metadata", "filter_metadata", XDS_METADATA_NAMESPACE, "ruleset_version"]
            }
            Self::RequestSize => &["request", "size"],
            Self::RequestTotalSize => &["request", "total_size"],
            Self::ResponseSize => &["response", "size"],
            Self::Protocol => &["request", "protocol"],
            Self::GrpcStatus => &["response", "trailers", "grpc-status"],
            Self::ResponseFlags => &["response", "flags"],
            Self::ResponseDetails => &["response", "code_details"],
            Self::PeerUri => &["connection", "uri_san_peer_certificate"],
            Self::AttemptCount => &["upstream", "request_attempt_count"],
        }
    }
}

/// Whoever can be asked: the proxy, or a test.
pub trait Properties {
    /// The value as the proxy serializes it, valid until the next question; None where it has none.
    fn get(&mut self, property: Property) -> Option<&[u8]>;

    /// Bytes of the names and values of the request's headers as they are now.
    fn request_header_bytes(&mut self) -> Option<u64>;

    /// Body bytes received from the caller, whatever was declared.
    fn received_bytes(&mut self) -> Option<u64> {
        let headers = self.request_header_bytes()?;
        self.number(Property::RequestTotalSize)?.checked_sub(headers)
    }

    /// A value that is a non-negative number (int64 or uint64, little-endian).
    fn number(&mut self, property: Property) -> Option<u64> {
        let bytes = self.get(property)?.try_into().ok()?;
        u64::try_from(i64::from_le_bytes(bytes)).ok()
    }

    /// A value that is text.
    fn text(&mut self, property: Property) -> Option<&str> {
        self.get(property).and_then(|value| std::str::from_utf8(value).ok())
    }
}

/// The ruleset version as Envoy hands out a value of route metadata: a Struct's number is a
/// little-endian double, a string is its text.
pub fn ruleset_version(property: &[u8]) -> Option<u64> {
    // Beyond 2^53 a double tells no whole number from its neighbours.
    let whole = |n: &f64| n.fract() == 0.0 && (1.0..9_007_199_254_740_992.0).contains(n);
    let number = property.try_into().map(f64::from_le_bytes).ok().filter(whole);
    number
        .map(|number| number as u64)
        .or_else(|| std::str::from_utf8(property).ok().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoy hands out a Struct's number as a double; text is taken too; nothing else becomes a version.
    #[test]
    fn ruleset_versions() {
        assert_eq!(ruleset_version(&42f64.to_le_bytes()), Some(42));
        assert_eq!(ruleset_version(b"42"), Some(42));
        assert_eq!(ruleset_version(b"12345678"), Some(12_345_678));
        let doubles = [1.5, f64::NAN, -1.0, 1e300, 9_007_199_254_740_992.0].map(f64::to_le_bytes);
        for garbage in [b"".as_slice(), b"new"].into_iter().chain(doubles.iter().map(<[u8; 8]>::as_slice)) {
            assert_eq!(ruleset_version(garbage), None, "{garbage:?}");
        }
    }
}
