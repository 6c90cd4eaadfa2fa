//! The filter's plugin configuration: one JSON object, checked whole, every wrong key named.

use serde_json::{Map, Value};
use spillway_contracts::{VALUE_DIRECTION_INBOUND, VALUE_DIRECTION_OUTBOUND};

use crate::Direction;

/// Longest DNS name.
const NAME_MAX: usize = 253;

const KEYS: [&str; 7] = [
    "direction",
    "cluster",
    "service",
    "collector_cluster",
    "flush_interval_ms",
    "max_batch_spans",
    "max_queue_spans",
];

/// What the filter is told once, at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Side of the application that this listener is on.
    pub direction: Direction,
    /// Cluster of this proxy, as in the topology.
    pub cluster: String,
    /// Service of this proxy.
    pub service: String,
    /// Envoy cluster of the collector (OTLP over gRPC).
    pub collector_cluster: String,
    /// Longest time that a span waits for its batch.
    pub flush_interval_ms: u64,
    /// Most spans per export.
    pub max_batch_spans: usize,
    /// Most spans that wait per worker; beyond, the oldest is dropped.
    pub max_queue_spans: usize,
}

impl Config {
    /// Reads the JSON object; the error names every wrong key, its value and what is allowed.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(json).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(map) = value else {
            return Err(format!("expected a JSON object with the keys {}", KEYS.join(", ")));
        };
        let mut keys = Keys { map, errors: Vec::new() };
        keys.refuse_unknown();
        let config = Self {
            direction: keys.direction(),
            cluster: keys.name("cluster", None),
            service: keys.name("service", None),
            collector_cluster: keys.name("collector_cluster", Some("spillway-collector")),
            flush_interval_ms: keys.number("flush_interval_ms", 1_000, 10..=60_000),
            max_batch_spans: keys.number("max_batch_spans", 256, 1..=65_536) as usize,
            max_queue_spans: keys.number("max_queue_spans", 4_096, 1..=1_048_576) as usize,
        };
        keys.refuse_small_queue(&config);
        if keys.errors.is_empty() { Ok(config) } else { Err(keys.errors.join("; ")) }
    }
}

struct Keys {
    map: Map<String, Value>,
    errors: Vec<String>,
}

impl Keys {
    fn refuse_unknown(&mut self) {
        for key in self.map.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            self.errors.push(format!("{key}: unknown key, allowed are {}", KEYS.join(", ")));
        }
    }

    fn refuse_small_queue(&mut self, config: &Config) {
        if config.max_queue_spans < config.max_batch_spans {
            self.errors.push(format!(
                "max_queue_spans: {} is less than max_batch_spans ({}), a batch would never fill",
                config.max_queue_spans, config.max_batch_spans
            ));
        }
    }

    fn direction(&mut self) -> Direction {
        match self.map.get("direction").map(|value| (value, value.as_str())) {
            Some((_, Some(VALUE_DIRECTION_INBOUND))) => return Direction::Inbound,
            Some((_, Some(VALUE_DIRECTION_OUTBOUND))) => return Direction::Outbound,
            Some((value, _)) => self.errors.push(format!(
                "direction: {value} is not allowed, expected {VALUE_DIRECTION_INBOUND:?} or {VALUE_DIRECTION_OUTBOUND:?}"
            )),
            None => self.errors.push(format!(
                "direction: missing, expected {VALUE_DIRECTION_INBOUND:?} or {VALUE_DIRECTION_OUTBOUND:?}"
            )),
        }
        Direction::Inbound
    }

    fn name(&mut self, key: &str, default: Option<&str>) -> String {
        match (self.map.get(key), default) {
            (None, Some(default)) => return default.to_string(),
            (None, None) => self.errors.push(format!("{key}: missing, it has no default")),
            (Some(Value::String(name)), _) if is_name(name) => return name.clone(),
            (Some(value), _) => self.errors.push(format!(
                "{key}: {value} is not allowed, expected letters, digits, '.', '_', '-', starting with a letter or digit"
            )),
        }
        String::new()
    }

    fn number(&mut self, key: &str, default: u64, allowed: std::ops::RangeInclusive<u64>) -> u64 {
        match self.map.get(key) {
            None => return default,
            Some(value) => match value.as_u64() {
                Some(number) if allowed.contains(&number) => return number,
                _ => self.errors.push(format!(
                    "{key}: {value} is not allowed, expected a whole number from {} to {}",
                    allowed.start(),
                    allowed.end()
                )),
            },
        }
        default
    }
}

/// Whether this can be the name of a cluster or service: also for names that come in headers.
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"direction": "outbound", "cluster": "one", "service": "cart"}"#;

    /// Identity is enough; the rest has defaults.
    #[test]
    fn minimal() {
        let config = Config::parse(MINIMAL.as_bytes()).unwrap();
        assert_eq!(config.direction, Direction::Outbound);
        assert_eq!((config.cluster.as_str(), config.service.as_str()), ("one", "cart"));
        assert_eq!(config.collector_cluster, "spillway-collector");
        assert_eq!(
            (config.flush_interval_ms, config.max_batch_spans, config.max_queue_spans),
            (1000, 256, 4096)
        );
    }

    /// Every wrong key is named at once, with its value.
    #[test]
    fn every_wrong_key_is_named() {
        let json = br#"{"direction": "sideways", "cluster": "", "colour": 1, "flush_interval_ms": -1, "max_batch_spans": "8"}"#;
        let error = Config::parse(json).unwrap_err();
        for part in [
            "direction: \"sideways\"",
            "cluster: \"\"",
            "service: missing",
            "colour: unknown",
            "flush_interval_ms: -1",
            "max_batch_spans: \"8\"",
        ] {
            assert!(error.contains(part), "{part} not in {error}");
        }
    }

    /// Identity has no default, and what is not an object is refused.
    #[test]
    fn no_identity_no_start() {
        for (json, part) in [("{}", "cluster: missing"), ("", "not JSON"), ("[]", "expected a JSON object")] {
            assert!(Config::parse(json.as_bytes()).unwrap_err().contains(part), "{json}");
        }
        let small = MINIMAL.replace('}', r#", "max_queue_spans": 8}"#);
        assert!(Config::parse(small.as_bytes()).unwrap_err().contains("max_queue_spans: 8"));
    }
}
