//! Who made a request that arrives, and whether what it says of itself is believed.
//!
//! Anybody can write a header. At an edge nothing that a request claims is believed; behind it either
//! the headers of the caller's proxy are, or its certificate.

use crate::config::{Config, is_name};
use crate::headers::RequestHeaders;
use crate::{Direction, Party};

/// The caller, as far as it is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller<'a> {
    /// Its cluster and service.
    pub party: Party<'a>,
    /// Nobody that is known: its trace and its headers of ours go no further.
    pub anonymous: bool,
    /// It named a cluster or a service that was not believed.
    pub contradicted: bool,
}

impl<'a> Caller<'a> {
    /// `uri`: of the peer's certificate, where the configuration asks for it.
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
                // Where certificates name no cluster, a proxy that has one says which it is in.
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

/// Shape of the URIs of services, such as `spiffe://spillway.local/cluster/{cluster}/service/{service}`: a
/// placeholder is a whole segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

const CLUSTER: &str = "{cluster}";
const SERVICE: &str = "{service}";

impl Pattern {
    /// None where it is no SPIFFE URI with one `{service}` and at most one `{cluster}`.
    pub fn parse(text: &str) -> Option<Self> {
        let segments: Vec<String> = text.split('/').map(str::to_string).collect();
        let count = |wanted: &str| segments.iter().filter(|segment| *segment == wanted).count();
        let literal =
            |segment: &String| segment == CLUSTER || segment == SERVICE || !segment.contains(['{', '}']);
        let right = text.starts_with("spiffe://") && count(SERVICE) == 1 && count(CLUSTER) <= 1;
        (right && segments.iter().all(literal)).then_some(Self(segments))
    }

    /// Who a URI names; None where it has another shape.
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

    /// At an edge no header is believed; behind it they are.
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

    /// With certificates only they name the caller: a header that says something else is counted, and a peer
    /// without one is nobody.
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

    /// Of certificates that name no cluster the proxy's header does.
    #[test]
    fn a_pattern_without_cluster() {
        let config =
            config(r#""edge": false, "peer_identity": "spiffe://cluster.local/ns/shop/sa/{service}""#);
        let claims = headers(Some("west"), None);
        let caller = Caller::of(&config, &claims, Some("spiffe://cluster.local/ns/shop/sa/front"));
        assert_eq!(caller.party, party(Some("west"), Some("front")));
    }

    /// Shapes that name no service, or that would match more than whole segments, are refused.
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
