//! The proxy's properties of a request, and the trait that reads them.

use spillway_contracts::XDS_METADATA_NAMESPACE;

/// A property of the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// Text: the class id, or the name of the catch-all route.
    RouteName,
    /// Text: the Envoy cluster. For clusters that the relay serves, `service|cluster`.
    ClusterName,
    /// The ruleset version in the route's metadata, see [`ruleset_version`].
    RulesetVersion,
    /// Number: the request's content-length, or the body bytes received if there is none.
    RequestSize,
    /// Number: body bytes received from the caller plus the current size of the headers in bytes.
    RequestTotalSize,
    /// Number: body bytes sent to the caller.
    ResponseSize,
    /// Text: the protocol, such as `HTTP/1.1` or `HTTP/2`.
    Protocol,
    /// Text: `grpc-status` from the trailers. Envoy's own `response.grpc_status` is not used,
    /// because it derives a status from the HTTP status when none was sent.
    GrpcStatus,
    /// Number: one bit per response flag, see [`crate::request::flags`].
    ResponseFlags,
    /// Text: the reason for the proxy's response (`response.code_details`).
    ResponseDetails,
    /// Number: tries, including the first.
    AttemptCount,
    /// Text: the first URI in the caller's certificate.
    PeerUri,
}

impl Property {
    /// The segments of the property's path in Envoy. Source: Envoy, "Attributes".
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

/// A source of request properties: the proxy, or a fake in tests.
pub trait Properties {
    /// Returns the value in the proxy's encoding, valid until the next call. None when the proxy
    /// has no value.
    fn get(&mut self, property: Property) -> Option<&[u8]>;

    /// Size of the request's current headers: the bytes of all names and values.
    fn request_header_bytes(&mut self) -> Option<u64>;

    /// Body bytes received from the caller, independent of the declared length.
    fn received_bytes(&mut self) -> Option<u64> {
        let headers = self.request_header_bytes()?;
        self.number(Property::RequestTotalSize)?.checked_sub(headers)
    }

    /// Returns a value that is a non-negative number (int64 or uint64, little-endian).
    fn number(&mut self, property: Property) -> Option<u64> {
        let bytes = self.get(property)?.try_into().ok()?;
        u64::try_from(i64::from_le_bytes(bytes)).ok()
    }

    /// Returns a value that is UTF-8 text.
    fn text(&mut self, property: Property) -> Option<&str> {
        self.get(property).and_then(|value| std::str::from_utf8(value).ok())
    }
}

/// Parses the ruleset version from a value of route metadata. Envoy encodes a number of a Struct as
/// a little-endian double, and a string as its text.
pub fn ruleset_version(property: &[u8]) -> Option<u64> {
    // From 2^53 on, a double no longer distinguishes neighbouring whole numbers.
    let is_whole_number = |n: &f64| n.fract() == 0.0 && (1.0..9_007_199_254_740_992.0).contains(n);
    let number = property.try_into().map(f64::from_le_bytes).ok().filter(is_whole_number);
    number
        .map(|number| number as u64)
        .or_else(|| std::str::from_utf8(property).ok().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoy returns a number of a Struct as a double. Text is accepted too. Nothing else is a
    /// version.
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
