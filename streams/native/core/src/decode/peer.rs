//! Determines the called service and cluster from a client span.

use spillway_contracts::XDS_CLUSTER_SEPARATOR;

use crate::classes::class_id::is_service;
use crate::decode::attributes::Attributes;
use crate::decode::keys::*;

/// Istio's Envoy clusters for traffic that leaves the mesh.
const NOT_SERVICES: [&[u8]; 3] = [b"PassthroughCluster", b"InboundPassthroughCluster", b"BlackHoleCluster"];

/// Returns service and cluster that a client span called. Each is empty when the span does not name
/// it, or names a foreign host.
///
/// Our own attributes are used unchanged. From a host name, the port and `.<namespace>.svc...` are
/// removed.
pub fn destination<'a>(attributes: &Attributes<'_, 'a>) -> (&'a [u8], &'a [u8]) {
    let cluster = attributes.text(DESTINATION_CLUSTER);
    let service = attributes.text(DESTINATION_SERVICE);
    if !service.is_empty() {
        return (service, cluster);
    }
    let (service, of_envoy) = upstream(attributes.text(UPSTREAM));
    if !service.is_empty() {
        return (service, if cluster.is_empty() { of_envoy } else { cluster });
    }
    let named = match host(attributes.text(PEER)) {
        [] => host(authority(attributes.text(URL))),
        service => service,
    };
    (named, cluster)
}

/// Returns service and cluster of an Envoy cluster's name.
///
/// The name has one of these forms: `service|cluster` of our relay, followed by `|!denied` for each
/// cluster that its failover excludes; `outbound|port|subset|host` of Istio; or the name of a
/// service.
fn upstream(name: &[u8]) -> (&[u8], &[u8]) {
    let mut parts =
        name.strip_suffix(b";").unwrap_or(name).split(|byte| XDS_CLUSTER_SEPARATOR.as_bytes() == [*byte]);
    match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(b"outbound"), Some(_), Some(_), Some(address), None) => (host(address), b""),
        (Some(service), Some(cluster), rest, ..)
            if is_service(service)
                && !cluster.is_empty()
                && rest.is_none_or(|part| part.starts_with(b"!")) =>
        {
            (service, cluster)
        }
        (Some(service), None, ..) if !NOT_SERVICES.contains(&service) => (host(service), b""),
        _ => (b"", b""),
    }
}

/// Returns the service that a host name of the mesh stands for.
fn host(address: &[u8]) -> &[u8] {
    let end = address.iter().position(|byte| *byte == b':').unwrap_or(address.len());
    let address = address.get(..end).unwrap_or(address);
    let mut labels = address.split(|byte| *byte == b'.');
    let label = labels.next().unwrap_or_default();
    let (mut foreign, mut in_mesh) = (false, false);
    for rest in labels {
        foreign = true;
        in_mesh |= rest == b"svc";
    }
    let named = (!foreign || in_mesh) && !label.iter().all(u8::is_ascii_digit) && is_service(label);
    if named { label } else { b"" }
}

/// Returns `host:port` of a URL.
fn authority(url: &[u8]) -> &[u8] {
    let Some(scheme) = url.windows(3).take(16).position(|three| three == b"://") else { return b"" };
    let rest = url.get(scheme + 3..).unwrap_or_default();
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or(rest)
}
