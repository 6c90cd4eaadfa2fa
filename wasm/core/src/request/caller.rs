//! The caller of an inbound request, and whether its claims about itself are believed.
//!
//! Anybody can write a header. An edge believes no claim of a request. Behind the edge, the filter
//! believes either the headers of the caller's proxy or the caller's certificate.

use crate::config::{Config, is_name};
use crate::request::headers::RequestHeaders;
use crate::{Direction, Party};

/// The caller of a request, as far as its claims are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The caller's cluster and service.
    pub party: Party<'a>,
    /// The caller is unknown. Its trace and its Spillway headers are not forwarded.
    pub anonymous: bool,
    /// The caller named a cluster or a service that was not believed.
    pub contradicted: bool,
}

impl<'a> Caller<'a> {
    /// Determines the caller of a request. `uri` comes from the peer's certificate, if the
    /// configuration asks for it.
    pub fn of(config: &'a Config, headers: &RequestHeaders<'a>, uri: Option<&'a str>) -> Self {
        if config.direction == Direction::Outbound {
            let party = Party { cluster: Some(&config.cluster), service: Some(&config.service) };
            return Self { party, ..Self::default() };
        }
        let claimed = Party {
            cluster: headers.source_cluster.and_then(name),
            service: headers.source_service.and_then(name),
        };
        let (party, anonymous) = match &config.peer_identity {
            _ if config.edge => (Party::default(), true),
            None => (claimed, false),
            Some(pattern) => match uri.and_then(|uri| pattern.read(uri)) {
                // When certificates name no cluster, an authenticated proxy states its cluster in a
                // header.
                Some(proven) => (Party { cluster: proven.cluster.or(claimed.cluster), ..proven }, false),
                None => (Party::default(), true),
            },
        };
        let differs = |claimed: Option<&str>, believed| claimed.is_some() && claimed != believed;
        let contradicted = differs(claimed.cluster, party.cluster) || differs(claimed.service, party.service);
        Self { party, anonymous, contradicted }
    }
}

fn name(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|name| is_name(name))
}

/// Pattern of the URIs in certificates, such as
/// `spiffe://spillway.local/cluster/{cluster}/service/{service}`. A placeholder fills a whole path
/// segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

const CLUSTER: &str = "{cluster}";
const SERVICE: &str = "{service}";

impl Pattern {
    /// Parses a pattern. Returns None unless it is a SPIFFE URI with exactly one `{service}` and at
    /// most one `{cluster}`.
    pub fn parse(text: &str) -> Option<Self> {
        let segments: Vec<String> = text.split('/').map(str::to_string).collect();
        let count = |wanted: &str| segments.iter().filter(|segment| *segment == wanted).count();
        let literal =
            |segment: &String| segment == CLUSTER || segment == SERVICE || !segment.contains(['{', '}']);
        let right = text.starts_with("spiffe://") && count(SERVICE) == 1 && count(CLUSTER) <= 1;
        (right && segments.iter().all(literal)).then_some(Self(segments))
    }

    /// Returns the party that a URI names. None when the URI does not match the pattern.
    pub fn read<'a>(&self, uri: &'a str) -> Option<Party<'a>> {
        let mut party = Party::default();
        let mut segments = uri.split('/');
        for wanted in &self.0 {
            let segment = segments.next()?;
            match wanted.as_str() {
                CLUSTER => party.cluster = Some(segment).filter(|name| is_name(name)),
                SERVICE => party.service = Some(segment).filter(|name| is_name(name)),
                literal if literal == segment => {}
                _ => return None,
            }
        }
        let named =
            party.service.is_some() && (party.cluster.is_some() || !self.0.iter().any(|s| s == CLUSTER));
        (named && segments.next().is_none()).then_some(party)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str = "spiffe://spillway.local/cluster/west/service/front";

    fn config(more: &str) -> Config {
        let json = format!(r#"{{"direction": "inbound", "cluster": "east", "service": "cart", {more}}}"#);
        Config::parse(json.as_bytes()).unwrap()
    }

    fn headers<'a>(cluster: Option<&'a str>, service: Option<&'a str>) -> RequestHeaders<'a> {
        RequestHeaders {
            source_cluster: cluster.map(str::as_bytes),
            source_service: service.map(str::as_bytes),
            ..RequestHeaders::default()
        }
    }

    fn party<'a>(cluster: Option<&'a str>, service: Option<&'a str>) -> Party<'a> {
        Party { cluster, service }
    }

    /// An edge believes no header. Behind the edge, headers are believed.
    #[test]
    fn headers_are_believed_behind_the_edge_only() {
        let (edge, inside) = (config(r#""edge": true"#), config(r#""edge": false"#));
        let claims = headers(Some("west"), Some("front"));
        let at_edge = Caller::of(&edge, &claims, None);
        assert_eq!(at_edge, Caller { anonymous: true, contradicted: true, ..Caller::default() });
        assert!(!Caller::of(&edge, &headers(None, None), None).contradicted);
        let behind = Caller::of(&inside, &claims, None);
        assert_eq!(behind, Caller { party: party(Some("west"), Some("front")), ..Caller::default() });
        assert!(!Caller::of(&inside, &headers(None, None), None).anonymous);
    }

    /// With certificates configured, only they name the caller. A contradicting header is counted,
    /// and a peer without a matching certificate is anonymous.
    #[test]
    fn certificates_outweigh_headers() {
        let pattern = "spiffe://spillway.local/cluster/{cluster}/service/{service}";
        let config = config(&format!(r#""edge": false, "peer_identity": "{pattern}""#));
        let proven = party(Some("west"), Some("front"));
        for (claims, contradicted) in [
            (headers(Some("west"), Some("front")), false),
            (headers(None, None), false),
            (headers(Some("east"), Some("front")), true),
            (headers(Some("west"), Some("cart")), true),
        ] {
            let caller = Caller::of(&config, &claims, Some(URI));
            assert_eq!(caller, Caller { party: proven, anonymous: false, contradicted });
        }
        let claims = headers(Some("west"), Some("front"));
        for uri in
            [None, Some("spiffe://spillway.local/cluster/west/relay"), Some("spiffe://other/ns/a/sa/b")]
        {
            let nobody = Caller { anonymous: true, contradicted: true, ..Caller::default() };
            assert_eq!(Caller::of(&config, &claims, uri), nobody);
        }
    }

    /// When certificates name no cluster, the proxy's header names it.
    #[test]
    fn a_pattern_without_cluster() {
        let config =
            config(r#""edge": false, "peer_identity": "spiffe://cluster.local/ns/shop/sa/{service}""#);
        let claims = headers(Some("west"), None);
        let caller = Caller::of(&config, &claims, Some("spiffe://cluster.local/ns/shop/sa/front"));
        assert_eq!(caller.party, party(Some("west"), Some("front")));
    }

    /// Patterns that name no service, or that would match less than a whole segment, are rejected.
    #[test]
    fn patterns() {
        let pattern = Pattern::parse("spiffe://td/cluster/{cluster}/service/{service}").unwrap();
        assert_eq!(pattern.read("spiffe://td/cluster/a/service/b"), Some(party(Some("a"), Some("b"))));
        for other in [
            "spiffe://td/cluster/a/service/",
            "spiffe://td/cluster/a/service/b/c",
            "spiffe://td/cluster//service/b",
        ] {
            assert_eq!(pattern.read(other), None, "{other}");
        }
        for bad in [
            "",
            "{service}",
            "spiffe://td/x",
            "spiffe://td/{service}/{service}",
            "spiffe://td/a-{service}",
            "spiffe://td/{name}/{service}",
        ] {
            assert_eq!(Pattern::parse(bad), None, "{bad}");
        }
    }
}
