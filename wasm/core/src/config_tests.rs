use super::*;

const MINIMAL: &str = r#"{"direction": "outbound", "cluster": "one", "service": "cart"}"#;

/// Direction, cluster and service are sufficient (outbound). All other keys have defaults.
#[test]
fn minimal() {
    let config = Config::parse(MINIMAL.as_bytes()).unwrap();
    assert_eq!(config.direction, Direction::Outbound);
    assert_eq!((config.cluster.as_str(), config.service.as_str()), ("one", "cart"));
    assert_eq!(config.collector_cluster, "spillway-collector");
    assert_eq!(
        (config.flush_interval_ms, config.bounds.batch_spans, config.bounds.queue_spans),
        (1000, 512, 8192)
    );
    assert_eq!((config.sample_ratio, config.long_lived_after_ms), (1.0, 60_000));
}

/// Every wrong key is named at once, with its value.
#[test]
fn every_wrong_key_is_named() {
    let json = br#"{"direction": "sideways", "cluster": "", "colour": 1, "flush_interval_ms": -1, "max_batch_spans": "8",
        "sample_ratio": 1.1, "long_lived_after_ms": 0, "max_batch_bytes": 1}"#;
    let error = Config::parse(json).unwrap_err();
    for part in [
        "direction: \"sideways\"",
        "cluster: \"\"",
        "service: missing",
        "colour: unknown",
        "flush_interval_ms: -1",
        "max_batch_spans: \"8\"",
        "sample_ratio: 1.1",
        "long_lived_after_ms: 0",
        "max_batch_bytes: 1",
    ] {
        assert!(error.contains(part), "{part} not in {error}");
    }
}

/// Cluster and service have no default. Input that is not a JSON object is rejected.
#[test]
fn no_identity_no_start() {
    for (json, part) in [("{}", "cluster: missing"), ("", "not JSON"), ("[]", "must be a JSON object")] {
        assert!(Config::parse(json.as_bytes()).unwrap_err().contains(part), "{json}");
    }
    let small = MINIMAL.replace('}', r#", "max_queue_spans": 8}"#);
    assert!(Config::parse(small.as_bytes()).unwrap_err().contains("max_queue_spans: 8"));
}

/// The ratio may be a whole number or a fraction. Every other value is rejected.
#[test]
fn ratios() {
    let with = |ratio: &str| {
        Config::parse(MINIMAL.replace('}', &format!(r#", "sample_ratio": {ratio}}}"#)).as_bytes())
    };
    for (text, ratio) in [("0", 0.0), ("1", 1.0), ("0.125", 0.125), ("1e-6", 1e-6)] {
        assert_eq!(with(text).unwrap().sample_ratio, ratio);
    }
    for text in ["-0.1", "5e-7", "\"1\"", "null", "2"] {
        assert!(with(text).unwrap_err().contains("sample_ratio"), "{text}");
    }
}

/// Every inbound listener must set `edge`, and no other listener may.
#[test]
fn edge_has_no_default() {
    let with = |direction: &str, more: &str| {
        let json = format!(r#"{{"direction": "{direction}", "cluster": "one", "service": "cart"{more}}}"#);
        Config::parse(json.as_bytes())
    };
    assert!(with("inbound", "").unwrap_err().contains("edge: missing"));
    assert!(with("inbound", r#", "edge": "yes""#).unwrap_err().contains("edge: \"yes\"; must be"));
    assert!(with("outbound", r#", "edge": true"#).unwrap_err().contains("edge: must be absent"));
    assert!(with("inbound", r#", "edge": true"#).unwrap().edge);
    let pattern = r#", "edge": false, "peer_identity": "spiffe://td/{service}""#;
    assert!(with("inbound", pattern).unwrap().peer_identity.is_some());
    for bad in [r#""front""#, "true"] {
        let more = format!(r#", "edge": false, "peer_identity": {bad}"#);
        assert!(with("inbound", &more).unwrap_err().contains("peer_identity: "), "{bad}");
    }
}

/// Envoy first parses the collector's name as a protobuf message, and uses it as a name only if
/// that fails. A name that is a valid message would be a service without a target.
#[test]
fn names_that_envoy_would_read_as_a_message_are_refused() {
    let with = |name: &str| {
        Config::parse(MINIMAL.replace('}', &format!(r#", "collector_cluster": "{name}"}}"#)).as_bytes())
    };
    for name in ["x1", "x1h2", "a12345678", "sx1t", "5abcd"] {
        let error = with(name).unwrap_err();
        assert!(error.contains(&format!("collector_cluster: {name:?}")), "{error}");
    }
    for name in [
        "spillway-collector",
        "otel",
        "collector",
        "x",
        "sx1",
        "sx1u",
        "200",
        "Bxx",
        "outbound_.4317_._.otel.svc",
    ] {
        assert_eq!(with(name).unwrap().collector_cluster, name);
    }
}
